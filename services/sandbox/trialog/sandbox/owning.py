"""Who owns a sandbox's folder on the host: the lock in it shows a dead worker's."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from trialog.sandbox.errors import SandboxBusyError

T = TypeVar("T")
_UNLOCKED_GRACE_S = 60.0


def abandoned(path: Path) -> bool:
    """Tell whether a folder without a lock file is one whose maker died, by its age."""
    try:
        return time.time() - path.stat().st_mtime > _UNLOCKED_GRACE_S
    except FileNotFoundError:
        return False


def own(path: Path, *, create: bool) -> tuple[int, int]:
    """Open a sandbox's folder and own it until the descriptors are closed, or this process dies;
    return the folder's and the lock's.

    Raises FileNotFoundError, and SandboxBusyError when another lives in it.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        lock = os.open("lock", os.O_RDWR | (os.O_CREAT if create else 0), 0o600, dir_fd=fd)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise SandboxBusyError(f"another worker owns sandbox {path.name}") from None
        except BaseException:  # the descriptor must not leak, whatever it was
            os.close(lock)
            raise
    except BaseException:  # the descriptor must not leak, whatever it was
        os.close(fd)
        raise
    return fd, lock


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for work also when cancelled: what follows must not overtake it."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
