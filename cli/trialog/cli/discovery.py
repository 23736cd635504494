"""How a command finds the stack that ``trialog up`` runs: a small file of its own per stack.

The folder is the user's alone: ``$XDG_RUNTIME_DIR/trialog``, else ``trialog-<uid>`` in the
temporary folder, which is used only if this user owns it and nobody else may write to it.

A file names a process by pid and start time: after a kill -9 the pid may come to be another's.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunningStack:
    """An embedded stack that runs now."""

    url: str
    pid: int
    data: str


def folder() -> Path:
    """Return the user's runtime folder for Trialog; it need not exist."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "trialog"
    return Path(tempfile.gettempdir()) / f"trialog-{os.getuid()}"


def announce(stack: RunningStack) -> Path | None:
    """Write a stack's file; return it, or None where the folder cannot be trusted or written.

    Commands then need ``--url``, and everything else works.
    """
    place = folder()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(place):
            return None
        path = place / f"up-{stack.pid}.json"
        part = path.with_suffix(".part")
        told = asdict(stack) | {"started": start_of(stack.pid)}
        part.write_text(json.dumps(told), encoding="utf-8")
        part.rename(path)
    except OSError:
        return None
    return path


def withdraw(path: Path | None) -> None:
    """Remove a stack's file."""
    if path is not None:
        path.unlink(missing_ok=True)


def running() -> list[RunningStack]:
    """Return the stacks that run, the one started last first; files of dead ones are removed."""
    place = folder()
    if not _is_ours(place):
        return []
    stacks: list[RunningStack] = []
    for path in sorted(place.glob("up-*.json"), key=_written_at, reverse=True):
        stack = _read_living(path)
        if stack is not None:
            stacks.append(stack)
            continue
        with contextlib.suppress(OSError):
            path.unlink()
    return stacks


def start_of(pid: int) -> str:
    """Return when a process of this user started, in the system's own words; empty without one."""
    try:
        # The name before the last ")" may hold anything; of the rest, start time is the 20th.
        told = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return "" if told[0] in (b"Z", b"X") else told[19].decode()
    except OSError:
        if Path("/proc/self/stat").exists():
            return ""
    # macOS; language and time zone fixed, since another terminal may have others.
    ps = ["/bin/ps", "-o", "lstart=", "-p", str(pid)]
    fixed = {"LC_ALL": "C", "TZ": "UTC"}
    return subprocess.run(ps, capture_output=True, text=True, check=False, env=fixed).stdout.strip()


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _read_living(path: Path) -> RunningStack | None:
    """Return a file's stack; None when it is broken or its process is gone."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        started = told.pop("started")
        stack = RunningStack(**told)
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None
    return stack if started and start_of(stack.pid) == started else None


def _is_ours(place: Path) -> bool:
    try:
        info = place.lstat()
    except OSError:
        return False
    writable_by_others = bool(info.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not writable_by_others
