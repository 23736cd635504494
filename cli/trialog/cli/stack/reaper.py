"""Finds and ends every process of a stack; also run as a script, as the stack's watchdog.

    python -I -S reaper.py STACK-PID DATA-FOLDER     (the stack holds the other end of stdin)

Ray, Postgres and sandboxes have descendants that no death signal reaches. Each process of a stack
inherits `TRIALOG_STACK=<data folder>` and `TRIALOG_STACK_PROCESS=<name>`; what erased that is known
otherwise: Postgres (which overwrites it) by its program and working folder, a sandbox (which starts
with an empty environment) by a mount from below the data folder. What a victim has started is a
victim as well. A shell that merely stands in the data folder is none.

Where there is no /proc (macOS) the process groups that the stack announced are ended.
Standard library only, and one file: a watchdog must start fast and weigh little.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER_MARK = "TRIALOG_STACK"
NAME_MARK = "TRIALOG_STACK_PROCESS"
_PROC = Path("/proc")
_GRACE_S = 3.0  # for Postgres, which got its death signal already and closes its files
_GIVE_UP_S = 20.0
_POLL_S = 0.02


@dataclass(frozen=True)
class Found:
    """A live process that belongs to a stack; `name` is empty where it is unknown."""

    pid: int
    name: str


@dataclass(frozen=True)
class _Seen:
    pid: int
    parent: int
    ours: bool
    name: str


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # gone meanwhile, or of another user
        return b""


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Say whether the process exists and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    status = _read(_PROC / str(pid) / "stat").rpartition(b")")[2].split()
    return not status or status[0] not in (b"Z", b"X")


def _marks(process: Path) -> dict[str, str]:
    """Read the marks from the environment that the process started with."""
    found: dict[str, str] = {}
    for entry in _read(process / "environ").split(b"\0"):
        if entry.startswith(FOLDER_MARK.encode()):
            key, _, value = os.fsdecode(entry).partition("=")
            found[key] = value
    return found


def _unmarked_name(process: Path, root: str, own_mounts: str) -> str | None:
    """Name a process of ours that carries no mark; None when it is not ours."""
    if _link(process / "cwd") == f"{root}/postgres":
        return "postgres" if _link(process / "exe").endswith("/postgres") else None
    if _link(process / "ns/mnt") in ("", own_mounts):
        return None
    mark = os.fsencode(f"{root}/sandboxes/").replace(b" ", b"\\040")
    return "sandbox" if mark in _read(process / "mountinfo") else None


def _scan(root: str) -> Iterator[_Seen]:
    own_mounts = _link(_PROC / "self/ns/mnt")
    for process in _PROC.iterdir():
        if not process.name.isdigit():
            continue
        status = _read(process / "stat").rpartition(b")")[2].split()
        if not status or status[0] in (b"Z", b"X"):
            continue
        marks = _marks(process)
        if marks.get(FOLDER_MARK) == root:
            name = marks.get(NAME_MARK, "")
        else:
            name = _unmarked_name(process, root, own_mounts)
        yield _Seen(int(process.name), int(status[1]), name is not None, name or "")


def find(root: Path, name: str | None = None, spare: Iterable[int] = ()) -> list[Found]:
    """Return the live processes of the stack in folder `root`, or those of its process `name`.

    `spare` and the caller are left out. A descendant without a mark gets its ancestor's name.
    Without /proc the answer is empty.
    """
    if not _PROC.joinpath("self").exists():
        return []
    left_out = {os.getpid(), *spare}
    seen = [process for process in _scan(str(root)) if process.pid not in left_out]
    names = {
        process.pid: process.name
        for process in seen
        if process.ours and name in (None, process.name)
    }
    grown = True
    while grown:
        grown = False
        for process in seen:
            if process.pid not in names and process.parent in names:
                names[process.pid] = names[process.parent]
                grown = True
    return [Found(pid, process_name) for pid, process_name in names.items()]


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def end_all(
    root: Path, name: str | None = None, spare: Iterable[int] = (), grace_s: float = _GRACE_S
) -> list[int]:
    """Kill what `find` finds until nothing is left; return the pids of what still lives.

    Postgres gets SIGINT and `grace_s` seconds first, so that it frees its shared memory.
    """
    started = time.monotonic()
    asked: set[int] = set()
    while left := find(root, name, spare):
        waited_s = time.monotonic() - started
        if waited_s > _GIVE_UP_S:
            break
        for process in left:
            if process.name != "postgres" or waited_s > grace_s:
                send(process.pid, signal.SIGKILL)
            elif process.pid not in asked:
                asked.add(process.pid)
                send(process.pid, signal.SIGINT)
        time.sleep(_POLL_S)
    return [process.pid for process in left]


def remove_tree(folder: Path) -> None:
    """Remove a folder that may hold very deep trees and folders without permissions.

    `shutil.rmtree` fails on both, and sandboxes leave both.
    """
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if not folder.exists():
            return
        subprocess.run([*command, "--", str(folder)], stderr=subprocess.DEVNULL, check=False)
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Announced:
    """What the stack has told its watchdog: process groups by name, folders to remove."""

    groups: dict[int, str] = field(default_factory=lambda: dict[int, str]())
    folders: list[Path] = field(default_factory=lambda: list[Path]())

    def take(self, line: str) -> None:
        """Take one line: `+PID NAME` (started), `-PID` (ended) or `*FOLDER` (to be removed)."""
        match line[0], line[1:]:
            case "+", process:
                pid, _, name = process.partition(" ")
                self.groups[int(pid)] = name
            case "-", pid:
                self.groups.pop(int(pid), None)
            case _, folder:
                self.folders.append(Path(folder))


def _follow(stack_pid: int) -> _Announced:
    """Read announcements until the stack is gone.

    The end of the pipe means that it is gone, unless a forked copy of it still holds the pipe:
    hence the pidfd beside it.
    """
    announced = _Announced()
    waiting = [0]
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):  # gone already (the pipe tells), or an old kernel
            waiting.append(os.pidfd_open(stack_pid))
    pending = b""
    while True:
        readable, _, _ = select.select(waiting, [], [])
        chunk = os.read(0, 65536) if 0 in readable else b""
        if not chunk:
            return announced
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            announced.take(os.fsdecode(line))


def _end_groups(groups: dict[int, str]) -> None:
    """End announced process groups where /proc cannot be searched."""
    for pid, name in groups.items():
        number = signal.SIGINT if name == "postgres" else signal.SIGKILL
        try:
            os.killpg(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline and any(is_alive(pid) for pid in groups):
        time.sleep(_POLL_S)


def main(stack_pid: int, root: Path) -> None:
    """Wait for the stack's end, end what it left and remove its temporary folders."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    announced = _follow(stack_pid)
    if _PROC.joinpath("self").exists():
        end_all(root, spare=[stack_pid])  # after a clean stop the stack's process lives on
    else:
        _end_groups(announced.groups)
    for folder in announced.folders:
        remove_tree(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
