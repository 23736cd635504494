"""Reading what a run's ``images`` name: plain files only, for as long as the build may take.

A name leads anywhere on this host, to files without an end as well. What reads them works in a few
threads of its own, and stops soon after nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import io
import os
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

from trialog.sandbox.errors import ImageError

P = ParamSpec("P")
T = TypeVar("T")
MAX_BYTES = 64 << 30
_CHUNK_BYTES = 1 << 20
_threads = ThreadPoolExecutor(4, thread_name_prefix="images")


class _Work:
    """One piece of work in a thread: how long it may go on."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._until = time.monotonic() + timeout_s
        self.stopped = threading.Event()

    def check(self) -> None:
        if self.stopped.is_set():
            raise ImageError("the build was stopped")
        if time.monotonic() > self._until:
            raise ImageError(f"the build took longer than {self._timeout_s:g} s")


_work = contextvars.ContextVar[_Work | None]("_work", default=None)


async def in_thread(
    timeout_s: float, doing: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run what reads in a thread, which stops when this is cancelled. Raises ImageError late."""
    work = _Work(timeout_s)

    def run() -> T:
        _work.set(work)
        check()  # it may have waited for a thread until now
        return doing(*args, **kwargs)

    try:
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(_threads, context.run, run)
    finally:
        work.stopped.set()


def check() -> None:
    """Raise ImageError when the work of this thread is to stop."""
    work = _work.get()
    if work is not None:
        work.check()


class _Checked(io.FileIO):
    """A file that is read only while its work goes on."""

    def readinto(self, buffer: Any, /) -> int | None:
        check()
        return super().readinto(buffer)


def regular(path: Path, limit_bytes: int = MAX_BYTES) -> IO[bytes]:
    """Open a plain file of at most some bytes. Raises ImageError, OSError.

    It is opened only as what waits for nobody: a pipe has no end, and a device may have none.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # opening a device may do something itself
        raise ImageError(f"{path} is not a regular file")
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    file = io.BufferedReader(_Checked(fd, "rb"), _CHUNK_BYTES)
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_size <= limit_bytes:
        return file
    file.close()
    why = f"above {limit_bytes} bytes" if stat.S_ISREG(info.st_mode) else "not a regular file"
    raise ImageError(f"{path} is {why}")


def text(path: Path, limit_bytes: int) -> str:
    """Return a plain file's text. Raises ImageError, OSError, UnicodeError."""
    with regular(path, limit_bytes) as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ImageError(f"{path} is above {limit_bytes} bytes")
    return data.decode("utf-8")


def sha256(path: Path, limit_bytes: int = MAX_BYTES) -> str:
    """Return a plain file's digest in hex. Raises ImageError, OSError."""
    digest, left = hashlib.sha256(), limit_bytes
    with regular(path, limit_bytes) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            left -= len(chunk)
            if left < 0:
                raise ImageError(f"{path} is above {limit_bytes} bytes")
    return digest.hexdigest()
