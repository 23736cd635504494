"""How a command finds the stack that ``trialog up`` runs: a small file of its own per stack.

The folder is the user's alone: ``$XDG_RUNTIME_DIR/trialog``, else ``trialog-<uid>`` in the
temporary folder, which is used only if this user owns it and nobody else may write to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
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
        part.write_text(json.dumps(asdict(stack)), encoding="utf-8")
        part.rename(path)
    except OSError:
        return None
    return path


def withdraw(path: Path | None) -> None:
    """Remove a stack's file."""
    if path is not None:
        path.unlink(missing_ok=True)


def newest() -> RunningStack | None:
    """Return the stack that was started last and still runs; files of dead ones are removed."""
    place = folder()
    if not _is_ours(place):
        return None
    found = sorted(place.glob("up-*.json"), key=_started_at, reverse=True)
    for path in found:
        stack = _read(path)
        if stack is not None and _alive(stack.pid):
            return stack
        with contextlib.suppress(OSError):
            path.unlink()
    return None


def _started_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _read(path: Path) -> RunningStack | None:
    try:
        return RunningStack(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _is_ours(place: Path) -> bool:
    try:
        info = place.lstat()
    except OSError:
        return False
    writable_by_others = bool(info.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not writable_by_others


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False  # another user's process has a pid that was ours
    return True
