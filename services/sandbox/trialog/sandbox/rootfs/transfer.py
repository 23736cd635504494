"""Folders into a sandbox and out of it, by requests to its PID 1.

Neither side follows a symlink. Going in, entries travel in batches; coming out, names, kinds and
sizes are checked here, since nothing inside is trusted.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from trialog.sandbox.bubblewrap import wire
from trialog.sandbox.bubblewrap.wire import Listed, Put
from trialog.sandbox.errors import FileMissingError, FileRefusedError, SandboxError
from trialog.sandbox.images import Pulled
from trialog.sandbox.rootfs import beneath

MAX_ENTRIES = 100_000
_BATCH_BYTES = 8 << 20
_CHUNK_BYTES = 4 << 20
_MAX_NAME_BYTES = 255
_MAX_DEPTH = 128
# Taken out, a path still fits below another folder: of this host, or of a verifier's sandbox.
MAX_PATH_BYTES = 2_000
# What is wrong with this host, not with an entry: without it, too little would be graded.
_OURS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE)

Ask = Callable[[bytes], Awaitable[bytes]]


async def upload(ask: Ask, source: Path, target: str) -> None:
    """Copy a folder's content into a folder, which is made when it is missing."""
    await put(ask, folder_entries(source, target))


async def put(ask: Ask, entries: Iterator[Put], *, follow: bool = False) -> None:
    """Put entries in place, read from the disk in a thread. Raises FileRefusedError."""
    async for batch in _batches(entries):
        wire.file_bytes("upload", await ask(wire.put_request(batch, follow=follow)))


def folder_entries(source: Path, target: str) -> Iterator[Put]:
    """Yield what puts a folder's content below a path; links stay links.

    Raises FileRefusedError.
    """
    yield Put("m", target)
    try:
        top = os.open(source, beneath.FOLDER)
    except OSError as error:
        raise FileRefusedError(f"{source}: {error.strerror}") from error
    try:
        yield from _below(top, target.rstrip("/"), 0)
    finally:
        os.close(top)


def file_entries(folder: int, name: str, target: str, mode: int | None = None) -> Iterator[Put]:
    """Yield what puts one regular file at a path, in parts where it is large."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise FileRefusedError(f"{target} is not a regular file")
        mode = stat.S_IMODE(info.st_mode) if mode is None else mode
        yield Put("f", target, mode, file.read(_CHUNK_BYTES))
        while more := file.read(_CHUNK_BYTES):
            yield Put("a", target, mode, more)


def _below(folder: int, target: str, depth: int) -> Iterator[Put]:
    if depth > _MAX_DEPTH:
        raise FileRefusedError(f"{target} is nested more than {_MAX_DEPTH} folders deep")
    for name in sorted(os.listdir(folder)):
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        path = f"{target}/{name}"
        if stat.S_ISDIR(info.st_mode):
            yield Put("d", path, stat.S_IMODE(info.st_mode))
            below = os.open(name, beneath.FOLDER, dir_fd=folder)
            try:
                yield from _below(below, path, depth + 1)
            finally:
                os.close(below)
        elif stat.S_ISREG(info.st_mode):
            yield from file_entries(folder, name, path)
        elif stat.S_ISLNK(info.st_mode):
            yield Put("l", path, 0o777, os.fsencode(os.readlink(name, dir_fd=folder)))
        else:
            raise FileRefusedError(f"{path} is neither a file, a folder nor a symlink")


async def _batches(entries: Iterator[Put]) -> AsyncIterator[list[bytes]]:
    while batch := await asyncio.to_thread(_next_batch, entries):
        yield batch


def _next_batch(entries: Iterator[Put]) -> list[bytes]:
    batch: list[bytes] = []
    size = 0
    for entry in entries:
        batch.append(entry.encoded())
        size += len(batch[-1])
        if size >= _BATCH_BYTES:
            break
    return batch


async def download(
    ask: Ask, source: str, target: Path, limit_bytes: int, exclude: Sequence[str]
) -> Pulled:
    """Copy a file or folder to an empty or missing folder of the host, as plain files.

    An entry that cannot be kept is refused, alone. Raises FileMissingError, and SandboxError where
    this host has no room for what may be kept.
    """
    request = wire.list_request(source, MAX_ENTRIES, exclude)
    await asyncio.to_thread(target.mkdir, parents=True, exist_ok=True)
    try:
        listed, cut = wire.listing(source, await ask(request))
    except FileMissingError:
        raise
    except FileRefusedError as error:
        return Pulled((), ((source.rpartition("/")[2] or "/", str(error)),))
    files: list[str] = []
    refused: list[tuple[str, str]] = []
    left = limit_bytes
    for entry in sorted(listed, key=lambda each: each.path):
        path = entry.path or source.rpartition("/")[2]
        why = _refusal(entry, path, left)
        if why is None and entry.kind != "d":
            found = f"{source}/{entry.path}" if entry.path else source
            try:
                took = await _pull(ask, found, target / path, entry, left)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                took = "listed twice: it was changed at that moment"
            except OSError as error:
                if error.errno in _OURS:
                    raise SandboxError(f"{found} cannot be kept: {error.strerror}") from error
                took = f"it cannot be kept: {error.strerror}"
            if isinstance(took, str):
                why = took
            else:
                files.append(path)
                left -= took
        if why is not None:
            refused.append((path.encode("utf-8", "replace").decode(), why))
    if cut:
        refused.append((".", f"more than {MAX_ENTRIES} files, or nested too deep"))
    is_folder = all(entry.path or entry.kind == "d" for entry in listed)
    return Pulled(tuple(files), tuple(refused), is_folder)


def _refusal(entry: Listed, path: str, left: int) -> str | None:
    """Say why a path is not copied, or None."""
    parts = path.split("/")
    try:
        longest = max(len(part.encode()) for part in parts)
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if len(path.encode()) > MAX_PATH_BYTES or len(parts) > _MAX_DEPTH:
        return "its path is too long"
    if longest > _MAX_NAME_BYTES or any(part in ("", ".", "..") for part in parts):
        return "its name is not acceptable"
    if entry.kind == "l":
        return "a symlink"
    if entry.kind not in "fd":
        return "not a regular file"
    return "above the limit of bytes" if entry.kind == "f" and entry.size > left else None


async def _pull(ask: Ask, source: str, target: Path, entry: Listed, left: int) -> int | str:
    """Copy one file, however it grows; return its bytes, or why it was left out."""
    at = 0
    with _Received(target) as received:
        while True:
            try:
                body = await ask(wire.chunk_request(source, at, _CHUNK_BYTES))
                data = wire.file_bytes(source, body)
            except FileRefusedError as error:
                return str(error)
            at += len(data)
            if at > left:
                return "above the limit of bytes"
            received.add(data)
            if len(data) < _CHUNK_BYTES:
                received.complete(0o755 if entry.mode & 0o111 else 0o644)
                return at


class _Received:
    """A file that is written here in parts, and removed unless it became complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("xb")
        self._complete = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if not self._complete:
            self._path.unlink()

    def add(self, data: bytes) -> None:
        """Append a part."""
        self._file.write(data)

    def complete(self, mode: int) -> None:
        """Keep it."""
        self._file.flush()
        self._path.chmod(mode)
        self._complete = True
