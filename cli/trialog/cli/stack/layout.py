"""The data folder of a stack: what lies where, who holds it, and its generated credentials.

```
DATA/stack.lock      held by the stack and its watchdog; holds the stack's pid
DATA/credentials     generated passwords and the Ray token (0600)
DATA/ports.json      port by process name
DATA/standin-calls.jsonl   what the stand-in judge was asked, over all starts
DATA/postgres/ nats/ blobs/ sandboxes/ logs/
DATA/ray-folder      where Ray's files are (elsewhere: its socket paths are long)
```
"""

import fcntl
import json
import os
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from trialog.cli.stack.errors import MachineUnfit, StackInUse
from trialog.cli.stack.reaper import is_alive

_CLEANUP_WAIT_S = 30.0
_LOG_BYTES = 16 * 1024 * 1024
# Ray adds about 65 bytes ("/session_<date>_<time>_<pid>/sockets/plasma_store"); AF_UNIX allows 107.
RAY_FOLDER_BYTES = 40
# Ray opens its temporary folder to everyone, so it gets one within a folder that nobody enters.
_RAY_INNER = "r"
_RAY_ADDED_BYTES = len(f"/tl-ray-12345678/{_RAY_INNER}")


@dataclass(frozen=True)
class Credentials:
    """Generated secrets of one data folder."""

    owner_password: str
    app_password: str
    nats_password: str
    ray_token: str


@dataclass(frozen=True)
class Layout:
    """Paths of one data folder."""

    root: Path
    ephemeral: bool

    @property
    def lock(self) -> Path:
        """The lock file, which holds the stack's pid."""
        return self.root / "stack.lock"

    @property
    def postgres(self) -> Path:
        """Postgres' data folder."""
        return self.root / "postgres"

    @property
    def nats(self) -> Path:
        """NATS' configuration and JetStream store."""
        return self.root / "nats"

    @property
    def blobs(self) -> Path:
        """The blob store."""
        return self.root / "blobs"

    @property
    def sandboxes(self) -> Path:
        """Worlds and the overlays of live sandboxes."""
        return self.root / "sandboxes"

    @property
    def logs(self) -> Path:
        """One log file for each process."""
        return self.root / "logs"

    @property
    def standin_calls(self) -> Path:
        """Every call of the stand-in judge: what was paid for must outlive its process."""
        return self.root / "standin-calls.jsonl"

    @property
    def ports(self) -> Path:
        """The port book."""
        return self.root / "ports.json"

    @property
    def ray_token(self) -> Path:
        """The token that every Ray process and client reads."""
        return self.root / "ray-token"


def open_layout(data_dir: Path | None) -> Layout:
    """Make the folders below `data_dir`, or of a new temporary folder when it is None.

    Raises MachineUnfit when the folder cannot be made or written.
    """
    if data_dir is None:
        layout = Layout(Path(tempfile.mkdtemp(prefix="trialog-")).resolve(), ephemeral=True)
    else:
        layout = Layout(data_dir.expanduser().absolute(), ephemeral=False)
    try:
        layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (layout.nats, layout.blobs, layout.sandboxes, layout.logs):
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise MachineUnfit(
            f"cannot use {layout.root} as data folder: {error.strerror}; "
            "choose another with --data DIR"
        ) from error
    if not os.access(layout.root, os.W_OK | os.X_OK):
        raise MachineUnfit(f"cannot write to the data folder {layout.root} as this user")
    return layout


def take_lock(layout: Layout) -> int:
    """Take the folder and return the lock's descriptor, which the watchdog shares.

    The lock outlives a killed stack for as long as its watchdog cleans up, so it is waited for
    when the process named in it is gone. Raises StackInUse when that process lives.
    """
    descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _CLEANUP_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode().strip()
            if not holder or is_alive(int(holder)) or time.monotonic() > deadline:
                os.close(descriptor)
                raise StackInUse(
                    f"a stack already runs on {layout.root} (pid {holder or 'unknown'}): "
                    "stop it, or choose another folder with --data DIR"
                ) from None
            time.sleep(0.05)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def rotate_logs(layout: Layout) -> None:
    """Put long logs of earlier starts aside; one generation is kept."""
    for log in layout.logs.glob("*.log"):
        if log.stat().st_size > _LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))


def load_credentials(layout: Layout) -> Credentials:
    """Return the folder's secrets, made on first use and readable by the owner only."""
    path = layout.root / "credentials"
    if not path.exists():
        made = {name: secrets.token_hex(24) for name in Credentials.__dataclass_fields__}
        _write_secret(path, json.dumps(made))
    credentials = Credentials(**json.loads(path.read_text()))
    if not layout.ray_token.exists():
        _write_secret(layout.ray_token, credentials.ray_token)
    return credentials


def _write_secret(path: Path, text: str) -> None:
    """Write a file of mode 0600 in one step, so that a crash leaves none or all of it."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    part.rename(path)


def fresh_ray_folder(layout: Layout) -> Path:
    """Make a new temporary folder for Ray with a short path, and drop the one of last time.

    Its parent is made with it, is closed to other users, and is what has to be removed.
    Raises MachineUnfit when no temporary folder has a path that is short enough.
    """
    note = layout.root / "ray-folder"
    if note.exists():
        last = Path(note.read_text())
        if last.name.startswith("tl-ray-"):
            shutil.rmtree(last, ignore_errors=True)
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108 - mkdtemp below
        if len(os.fsencode(parent)) + _RAY_ADDED_BYTES > RAY_FOLDER_BYTES:
            continue
        if os.access(parent, os.W_OK | os.X_OK):
            closed = Path(tempfile.mkdtemp(prefix="tl-ray-", dir=parent))  # 0700
            note.write_text(str(closed))
            folder = closed / _RAY_INNER
            folder.mkdir(mode=0o700)
            return folder
    longest = RAY_FOLDER_BYTES - _RAY_ADDED_BYTES
    raise MachineUnfit(
        f"Ray needs a writable temporary folder with a path of at most {longest} bytes "
        f"(socket paths are limited): set TMPDIR; {tempfile.gettempdir()} will not do"
    )
