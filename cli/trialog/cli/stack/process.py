"""One child process: how it is described, spawned, probed and stopped."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trialog.cli.stack.ports import LOOPBACK
from trialog.cli.stack.reaper import FOLDER_MARK, NAME_MARK

_LAUNCHER = Path(__file__).with_name("launch.py")
_PROBE_TIMEOUT_S = 1.0
_TAIL_BYTES = 4096

# Told the pid of the present life, says whether it can be used.
Probe = Callable[[int], Awaitable[bool]]


@dataclass(frozen=True)
class ProcessSpec:
    """What a process is started with. Secrets belong into `env`, never into `argv`."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    probe: Probe
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_s: float = 10.0
    death_signal: signal.Signals = signal.SIGKILL
    identity: str = "same"  # or "userns:UID", "UID:GID": see launch.py
    owns_descendants: bool = False  # end all that it started before it is started again


def base_env() -> dict[str, str]:
    """Return the caller's environment without what would steer our children."""
    steering = ("TRIALOG_", "RAY_", "PG", "NATS_")
    return {name: value for name, value in os.environ.items() if not name.startswith(steering)}


async def spawn(spec: ProcessSpec, root: Path, log: Path) -> asyncio.subprocess.Process:
    """Start the process in a session of its own, its output appended to `log`.

    It dies with the thread that runs the event loop (Linux); elsewhere the watchdog ends it.
    """
    # Ray's workers set their title, and would overwrite the marks with it.
    env = {**spec.env, "SPT_NOENV": "1", FOLDER_MARK: str(root), NAME_MARK: spec.name}
    launcher = [sys.executable, "-I", "-S", str(_LAUNCHER)]
    orders = [str(os.getpid()), str(int(spec.death_signal)), spec.identity]
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return await asyncio.create_subprocess_exec(
            *launcher,
            *orders,
            *spec.argv,
            env=env,
            cwd=root,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def log_tail(log: Path) -> str:
    """Return the last lines of a log for an error message."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(f"  | {line}" for line in lines[-12:])


async def http_ok(port: int, path: str) -> bool:
    """Say whether GET `path` on the loopback port answers 200."""
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            try:
                head = f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode())
                status = (await reader.readline()).split()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return len(status) > 1 and status[1] == b"200"


async def port_open(port: int) -> bool:
    """Say whether something listens on the loopback port."""
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(LOOPBACK, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
