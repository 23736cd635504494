"""The content-addressed blob store: bytes under their SHA-256, written before what names them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, BinaryIO, Protocol, TypeVar

from trialog.spine import telemetry
from trialog.spine.database import Database, patiently
from trialog.spine.log import MAX_INLINE_BLOB_BYTES
from trialog.spine.postgres import queries

_DIGEST = re.compile(r"[0-9a-f]{64}")
_CACHE_BYTES = 64_000_000
_CHUNK_BYTES = 1 << 20
_ABANDONED_S = 3600.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


_T = TypeVar("_T")


class BlobMissingError(LookupError):
    """No blob has this digest: it was named before it was written, or it was lost."""


class BlobsUnavailableError(Exception):
    """The folder of large blobs cannot be written or read now: full, read-only, not mounted.

    Nothing was kept, and the same call may go well later.
    """


class BlobStore(Protocol):
    """Bytes by their hex SHA-256."""

    async def put(self, data: bytes) -> str:
        """Keep the bytes and return their digest; durable when it returns.

        Raises BlobsUnavailableError at once: the caller decides whether to wait.
        """
        ...

    async def stage(self, data: bytes) -> tuple[str, list[bytes]]:
        """Return the digest, and what must still go into the member that names it: small bytes
        ride in the same transaction, large ones are already on disk.

        A folder that cannot be written is waited for: what was paid for is not thrown away.
        """
        ...

    async def stage_file(self, path: Path) -> tuple[str, list[bytes]]:
        """Stage a file's bytes as ``stage`` does, without holding a large one in memory.

        The file itself stays where it is.
        """
        ...

    async def fetch(self, digest: str, path: Path) -> None:
        """Write the bytes of a digest to a new file, without holding large ones in memory.

        Raises BlobMissingError, BlobsUnavailableError, and OSError when it cannot be written.
        """
        ...

    async def get(self, digest: str) -> bytes:
        """Return the bytes. Raises BlobMissingError, BlobsUnavailableError."""
        ...

    async def get_many(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Return the bytes of each digest. Raises BlobMissingError for the first that is not."""
        ...


class PostgresBlobs:
    """Up to 32 KB in a bytea table, larger as files of one folder that all services share."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached = 0

    async def put(self, data: bytes) -> str:
        """Keep the bytes and return their digest."""
        digest = hashlib.sha256(data).hexdigest()
        if len(data) <= MAX_INLINE_BLOB_BYTES:
            await patiently(lambda: self._insert(digest, data))
        else:
            await self._write(digest, data)
        self._remember(digest, data)
        return digest

    async def _insert(self, digest: str, data: bytes) -> None:
        async with self._database.connection() as connection:
            await connection.execute(queries.PUT_BLOBS, [bytes.fromhex(digest)], [data])

    async def stage(self, data: bytes) -> tuple[str, list[bytes]]:
        """Return the digest, and the bytes when they are small enough to ride in the batch."""
        digest = hashlib.sha256(data).hexdigest()
        if len(data) <= MAX_INLINE_BLOB_BYTES:
            self._remember(digest, data)
            return digest, [data]
        await _until_written(lambda: self._write(digest, data))
        self._remember(digest, data)
        return digest, []

    async def _write(self, digest: str, data: bytes) -> None:
        try:
            await asyncio.to_thread(_write_file, self._folder, digest, data)
        except OSError as error:
            raise BlobsUnavailableError(f"{self._folder} cannot be written: {error}") from error

    async def stage_file(self, path: Path) -> tuple[str, list[bytes]]:
        """Return the digest of a file's bytes, and the bytes when they ride in the batch."""
        small = await asyncio.to_thread(read_small, path, MAX_INLINE_BLOB_BYTES)
        if small is not None:
            return await self.stage(small)
        return await _until_written(lambda: asyncio.to_thread(_copy_in, path, self._folder)), []

    async def fetch(self, digest: str, path: Path) -> None:
        """Write the bytes of a digest to a new file: from memory, the table, or the folder."""
        known = self._cache.get(digest)
        if known is None and _DIGEST.fullmatch(digest):
            known = (await patiently(lambda: self._select([digest]))).get(digest)
        if known is not None:
            await asyncio.to_thread(path.write_bytes, known)
            return
        if not _DIGEST.fullmatch(digest):
            raise BlobMissingError(f"{digest!r} is no SHA-256 in hex")
        await asyncio.to_thread(_copy_out, _place(self._folder, digest), path)

    async def get(self, digest: str) -> bytes:
        """Return the bytes of a digest."""
        return (await self.get_many([digest]))[digest]

    async def get_many(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Return the bytes of each digest: from memory, the table, then the folder."""
        wanted = dict.fromkeys(digests)
        found = {digest: self._cache[digest] for digest in wanted if digest in self._cache}
        missing = [digest for digest in wanted if digest not in found]
        for digest in missing:
            if not _DIGEST.fullmatch(digest):
                raise BlobMissingError(f"{digest!r} is no SHA-256 in hex")
        if missing:
            found |= await patiently(lambda: self._select(missing))
        for digest in missing:
            if digest not in found:
                found[digest] = await asyncio.to_thread(_read_file, _place(self._folder, digest))
            self._remember(digest, found[digest])
        return found

    async def _select(self, digests: Sequence[str]) -> dict[str, bytes]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                queries.GET_BLOBS, [bytes.fromhex(digest) for digest in digests]
            )
        return {row["digest"].hex(): _whole(row["digest"].hex(), row["bytes"]) for row in rows}

    def _remember(self, digest: str, data: bytes) -> None:
        if digest in self._cache or len(data) > _CACHE_BYTES // 8:
            return
        self._cache[digest] = data
        self._cached += len(data)
        while self._cached > _CACHE_BYTES:
            self._cached -= len(self._cache.popitem(last=False)[1])


async def _until_written(write: Callable[[], Awaitable[_T]]) -> _T:
    """Return what a write comes to. A folder that cannot be written is waited for."""
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return await write()
        except BlobsUnavailableError as error:
            telemetry.logger().warning("a blob waits for its folder", error=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def read_small(path: Path, limit: int) -> bytes | None:
    """Return a file's bytes, None when there are more than the limit."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    return None if len(data) > limit else data


def _place(folder: Path, digest: str) -> Path:
    return folder / digest[:2] / digest


def _write_file(folder: Path, digest: str, data: bytes) -> None:
    """Write, fsync, rename, fsync the folders: a name never stands for half the bytes.

    A file that is there already may be another process's of this moment: its folder is synced too.
    """
    path = _place(folder, digest)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_aside(path, data, _new(folder))
    _sync(path.parent)
    _sync(folder)


def _new(folder: Path) -> Path:
    """Return where files lie until they are whole, so that what a death left there is found."""
    new = folder / "new"
    new.mkdir(parents=True, exist_ok=True)
    return new


def sweep(folder: Path) -> int:
    """Remove what writers that died left behind; return how many files that were.

    A file that is being written is younger than any that is removed.
    """
    removed = 0
    for path in _new(folder).iterdir():
        with contextlib.suppress(FileNotFoundError):  # it became whole, or another sweeps
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()
                removed += 1
    return removed


def _write_aside(path: Path, data: bytes, new: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=new, delete=False) as file:
        aside = Path(file.name)
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            aside.unlink()
            raise
    aside.rename(path)


def _copy_in(path: Path, folder: Path) -> str:
    """Copy a file in and return its digest, which names it only once all of it is there."""
    with path.open("rb") as source:  # one that cannot be read is nothing to wait for
        try:
            return _keep_whole(source, folder)
        except OSError as error:
            raise BlobsUnavailableError(f"{folder} cannot be written: {error}") from error


def _keep_whole(source: BinaryIO, folder: Path) -> str:
    with tempfile.NamedTemporaryFile(dir=_new(folder), delete=False) as file:
        aside = Path(file.name)
        try:
            digest = _copy(source, file)
            file.flush()
            os.fsync(file.fileno())
            path = _place(folder, digest)
            path.parent.mkdir(exist_ok=True)
            aside.rename(path)
        except BaseException:
            aside.unlink()
            raise
    _sync(path.parent)
    _sync(folder)
    return digest


def _copy_out(kept: Path, path: Path) -> None:
    try:
        source = kept.open("rb")
    except FileNotFoundError as error:
        raise BlobMissingError(f"no blob {kept.name}") from error
    except OSError as error:
        raise BlobsUnavailableError(f"{kept} cannot be read: {error}") from error
    with source, path.open("wb") as file:
        digest = _copy(source, file)
    if digest != kept.name:
        path.unlink()
        raise BlobMissingError(f"blob {kept.name} is damaged: its bytes have another digest")


def _copy(source: BinaryIO, target: IO[bytes]) -> str:
    """Copy all bytes and return their digest."""
    seen = hashlib.sha256()
    while chunk := source.read(_CHUNK_BYTES):
        seen.update(chunk)
        target.write(chunk)
    return seen.hexdigest()


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _read_file(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise BlobMissingError(f"no blob {path.name}") from error
    except OSError as error:
        raise BlobsUnavailableError(f"{path} cannot be read: {error}") from error
    return _whole(path.name, data)


def _whole(digest: str, data: bytes) -> bytes:
    if hashlib.sha256(data).hexdigest() != digest:
        raise BlobMissingError(f"blob {digest} is damaged: its bytes have another digest")
    return data
