"""States as files (``rootfs/state.py``) and layers of images: the same, written differently.

A layer has an empty file ``.wh.NAME`` for what was deleted and ``.wh..wh..opq`` in a folder that
hides the image's; a state a character device 0/0 and an attribute.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from trialog.sandbox.errors import ImageError, SnapshotRefusedError
from trialog.sandbox.rootfs.state import (
    KEPT_FILE_BYTES,
    KEPT_TOTAL_BYTES,
    MAX_DEPTH,
    MAX_ENTRIES,
    OPAQUE,
    Instead,
    without,
)
from trialog.sandbox.rootfs.unpack import inner_path
from trialog.sandbox.snapshot import Snapshot, SnapshotEntry

_DELETED, _HIDES = ".wh.", ".wh..wh..opq"
# Whatever is below it in a layer was put there by the daemon, for mounts: nobody inside sees it.
_COVERED = "dev"
_HEADER = f"SCHILY.xattr.{OPAQUE}"


def changes_of(path: Path, rest: IO[bytes], left_out: Collection[str] = ()) -> list[str]:
    """Return what a state deletes, and write an archive of what it puts in place, but for some
    paths.

    A folder that hides the image's is deleted first. Raises ImageError, OSError, TarError, KeyError
    where a hard link leads to nothing.
    """
    deleted: list[str] = []
    with (
        tarfile.open(path, "r:") as archive,
        tarfile.open(fileobj=rest, mode="w", format=tarfile.PAX_FORMAT) as out,
    ):
        for member in without(left_out, archive, f"state {path.name}"):
            name = inner_path(member.name)
            if member.ischr() or _HEADER in member.pax_headers:
                deleted.append(name)
            if not member.ischr():
                copied = _copied(member, name or ".")
                out.addfile(copied, archive.extractfile(member) if member.isreg() else None)
    return deleted


def to_state(
    layer: tarfile.TarFile, target: Path, limit_bytes: int, instead: Instead | None = None
) -> Snapshot:
    """Write a layer as a state and list it. Raises SnapshotRefusedError above the caps."""
    opaque = {_inner(member.name).rpartition("/")[0] for member in layer if _marks(member)}
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tarfile.open(aside, "w", format=tarfile.PAX_FORMAT) as out:
            writer = _Writer(layer, out, limit_bytes)
            entries = list(writer.written(opaque, instead.names if instead else ()))
            if instead is not None:
                entries += writer.added(instead.archive, opaque)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return Snapshot(tuple(sorted(entries, key=lambda entry: entry.path)))


def _marks(member: tarfile.TarInfo) -> bool:
    return member.name.rpartition("/")[2] == _HIDES


def _inner(name: str) -> str:
    try:
        return inner_path(name)
    except ImageError as error:
        raise SnapshotRefusedError(str(error)) from error


class _Writer:
    """One pass over a layer, counting against the caps."""

    def __init__(self, layer: tarfile.TarFile, out: tarfile.TarFile, limit_bytes: int) -> None:
        self._layer = layer
        self._out = out
        self._limit_bytes = limit_bytes
        self._bytes = self._kept_bytes = 0
        self._files: dict[str, SnapshotEntry] = {}
        self._folders: set[str] = set()

    def written(self, opaque: set[str], left_out: Collection[str]) -> Iterator[SnapshotEntry]:
        count = 0
        for member in self._layer:
            path = _inner(member.name)
            above, _, name = path.rpartition("/")
            if not path or name.startswith(_DELETED * 2) or path.split("/")[0] == _COVERED:
                continue
            if f"{above}/{name.removeprefix(_DELETED)}" in left_out:
                continue
            count += 1
            if count > MAX_ENTRIES:
                raise SnapshotRefusedError(f"more than {MAX_ENTRIES} files and folders were left")
            if path.count("/") > MAX_DEPTH:
                raise SnapshotRefusedError(f"folders are nested more than {MAX_DEPTH} deep")
            if name.startswith(_DELETED):
                yield self._delete(path.removesuffix(name) + name.removeprefix(_DELETED))
            elif member.isdir():
                yield from self._folder(member, path, path in opaque)
            else:
                yield self._leaf(member, path)

    def added(self, archive: tarfile.TarFile, opaque: set[str]) -> Iterator[SnapshotEntry]:
        """Go on with what another archive has; see ``Instead``."""
        self._layer = archive
        for member in archive:
            if member.isreg():
                yield self._leaf(member, member.name)
            elif member.isdir() and member.name not in self._folders:
                yield from self._folder(member, member.name, hides=False)
            elif member.ischr() and member.name.rpartition("/")[0] not in opaque:
                yield self._delete(member.name)

    def _delete(self, path: str) -> SnapshotEntry:
        mark = tarfile.TarInfo(path)
        mark.type = tarfile.CHRTYPE
        self._out.addfile(mark)
        return SnapshotEntry(path, "deleted", mode=0)

    def _folder(self, member: tarfile.TarInfo, path: str, hides: bool) -> Iterator[SnapshotEntry]:
        copied = _copied(member, path)
        self._folders.add(path)
        if hides:
            copied.pax_headers = {_HEADER: "y"}
            yield SnapshotEntry(path, "deleted", mode=0)
        self._out.addfile(copied)
        yield SnapshotEntry(path, "dir", mode=copied.mode)

    def _leaf(self, member: tarfile.TarInfo, path: str) -> SnapshotEntry:
        copied = _copied(member, path)
        if member.isreg():
            return self._file(member, copied)
        if member.issym():
            self._out.addfile(copied)
            target = os.fsencode(member.linkname)
            digest = hashlib.sha256(target).hexdigest()
            return SnapshotEntry(path, "symlink", len(target), digest=digest, mode=0o777)
        if member.islnk():
            copied.linkname = inner_path(member.linkname)
            self._out.addfile(copied)
            return replace(self._files[copied.linkname], path=path, data=None)
        if member.isfifo():
            self._out.addfile(copied)
        return SnapshotEntry(path, "other", mode=copied.mode)

    def _file(self, member: tarfile.TarInfo, copied: tarfile.TarInfo) -> SnapshotEntry:
        self._bytes += member.size
        if self._bytes > self._limit_bytes:
            raise SnapshotRefusedError(f"more than {self._limit_bytes} bytes were left")
        content = self._layer.extractfile(member)
        assert content is not None, "a regular file has content"
        keep = member.size <= min(KEPT_FILE_BYTES, KEPT_TOTAL_BYTES - self._kept_bytes)
        read = _Digested(content, keep=keep)
        self._out.addfile(copied, read)
        data = bytes(read.kept) if keep else None
        self._kept_bytes += len(data or b"")
        executable, digest = bool(copied.mode & 0o111), read.digest.hexdigest()
        entry = SnapshotEntry(
            copied.name, "file", member.size, executable, digest, data, copied.mode
        )
        self._files[copied.name] = entry
        return entry


class _Digested(io.RawIOBase):
    """Digests what is read, and keeps it if asked to."""

    def __init__(self, content: IO[bytes], *, keep: bool) -> None:
        self._content, self._keep = content, keep
        self.digest = hashlib.sha256()
        self.kept = bytearray()

    def read(self, size: int = -1, /) -> bytes:
        data = self._content.read(size)
        self.digest.update(data)
        if self._keep:
            self.kept += data
        return data


def _copied(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
    """Return a member without names of owners and attributes."""
    copied = tarfile.TarInfo(path)
    copied.type = tarfile.REGTYPE if member.isreg() else member.type
    copied.size = member.size if member.isreg() else 0
    copied.mode = member.mode & 0o7777
    copied.mtime = max(int(member.mtime), 0)
    copied.uid, copied.gid, copied.linkname = member.uid, member.gid, member.linkname
    return copied
