"""A build context as one tar archive that depends on nothing but paths, modes and contents."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from trialog.sandbox.errors import ImageError
from trialog.sandbox.rootfs.context import read_text
from trialog.sandbox.rootfs.ignore import NAME, Ignore

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_CHUNK_BYTES = 1 << 20
_MAX_DEPTH = 128


def pack(folder: Path, dockerfile: str, text: str, out: IO[bytes] | None = None) -> str:
    """Write a context to a file, with ``text`` as its Dockerfile; return the hex SHA-256.

    Symlinks stay symlinks, sockets and devices are left out, and so is what ``.dockerignore``
    says, the Dockerfile apart. Raises ImageError.
    """
    has_ignore = (folder / NAME).exists()
    ignore = Ignore.parse(read_text(folder, NAME)) if has_ignore else Ignore()
    into = _Hashed(out)
    try:
        with tarfile.open(fileobj=into, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                _pack(archive, top, "", ignore, dockerfile)
            finally:
                os.close(top)
            content = text.encode()
            member = _member(dockerfile, 0o644)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    except OSError as error:
        raise ImageError(f"the build context cannot be read: {error}") from error
    return into.digest.hexdigest()


class _Hashed(io.RawIOBase):
    """Hands on what is written, and digests it."""

    def __init__(self, out: IO[bytes] | None) -> None:
        self._out = out
        self.digest = hashlib.sha256()

    def write(self, data: bytes, /) -> int:  # type: ignore[override] - tarfile writes bytes
        self.digest.update(data)
        return len(data) if self._out is None else self._out.write(data)


def _pack(
    archive: tarfile.TarFile, folder: int, prefix: str, ignore: Ignore, dockerfile: str
) -> None:
    if prefix.count("/") > _MAX_DEPTH:
        raise ImageError(f"the build context is nested more than {_MAX_DEPTH} folders deep")
    for name in sorted(os.listdir(folder)):
        path, info = prefix + name, os.stat(name, dir_fd=folder, follow_symlinks=False)
        left_out = ignore.leaves_out(path)
        if stat.S_ISDIR(info.st_mode):
            if not left_out:
                archive.addfile(_member(path, info.st_mode, tarfile.DIRTYPE))
            if not left_out or ignore.brings_back:
                _descend(archive, folder, path, ignore, dockerfile)
        elif not left_out and path != dockerfile:
            _add(archive, folder, name, path, info)


def _descend(
    archive: tarfile.TarFile, folder: int, path: str, ignore: Ignore, dockerfile: str
) -> None:
    below = os.open(path.rpartition("/")[2], _FOLDER, dir_fd=folder)
    try:
        _pack(archive, below, path + "/", ignore, dockerfile)
    finally:
        os.close(below)


def _add(archive: tarfile.TarFile, folder: int, name: str, path: str, info: os.stat_result) -> None:
    if stat.S_ISLNK(info.st_mode):
        member = _member(path, 0o777, tarfile.SYMTYPE)
        member.linkname = os.readlink(name, dir_fd=folder)
        archive.addfile(member)
    elif stat.S_ISREG(info.st_mode):
        member = _member(path, info.st_mode)
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(file, "rb") as content:
            member.size = os.fstat(content.fileno()).st_size
            archive.addfile(member, content)


def _member(path: str, mode: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.type = kind
    member.mode = stat.S_IMODE(mode)
    return member


async def chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield a file's bytes from its beginning."""
    file.seek(0)
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk
