"""A sandbox's state as a file: what differs from its image, taken from an overlay's upper folder.

A plain tar (PAX). What was deleted is a character device 0/0, a folder that hides the image's has
the attribute ``user.overlay.opaque`` as PAX header; owners are as seen inside. Sockets and other
extended attributes are left out. Processes must stand still while it is taken.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trialog.sandbox.errors import ImageError, SnapshotRefusedError
from trialog.sandbox.rootfs import beneath
from trialog.sandbox.rootfs.unpack import (
    IDS,
    MAX_BYTES,
    MAX_PATH_BYTES,
    Unpacker,
    inner_path,
    members,
)
from trialog.sandbox.snapshot import Snapshot, SnapshotEntry

MAX_DEPTH = 128
MAX_ENTRIES = 100_000
KEPT_FILE_BYTES = 1 << 20
KEPT_TOTAL_BYTES = 32 << 20
OPAQUE = "user.overlay.opaque"
_OPAQUE_KEYS = (OPAQUE, "trusted.overlay.opaque")
_HEADER = f"SCHILY.xattr.{OPAQUE}"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Instead:
    """Paths of which an upper folder does not tell the truth, and an archive of what is there: new
    content, marks of what was deleted, the folders that these are in (unless told anyway)."""

    names: Collection[str]
    archive: tarfile.TarFile


def pack(
    upper: Path,
    target: Path,
    limit_bytes: int,
    *,
    base: int | None = None,
    instead: Instead | None = None,
) -> Snapshot:
    """Write an upper folder to a file and list it.

    ``base`` is what owners' ids have more on this host than inside; None: all is root's. Raises
    SnapshotRefusedError above ``limit_bytes`` of content or the caps on entries and depth; the
    file is there only when it is whole.
    """
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tarfile.open(aside, "w", format=tarfile.PAX_FORMAT) as archive:
            packer = _Packer(archive, limit_bytes, base, instead.names if instead else ())
            entries = packer.pack(upper)
            if instead is not None:
                packer.add(instead.archive)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return Snapshot(tuple(sorted(entries, key=lambda entry: entry.path)))


class _Packer:
    """One pass over an upper folder, counting against the caps.

    Folders are opened one below the other, following no symlink; files are looked at before they
    are opened, and read with a bound.
    """

    def __init__(
        self,
        archive: tarfile.TarFile,
        limit_bytes: int,
        base: int | None,
        left_out: Collection[str] = (),
    ) -> None:
        self._archive = archive
        self._limit_bytes = min(limit_bytes, MAX_BYTES)
        self._base = base
        self._left_out = left_out
        self._entries: list[SnapshotEntry] = []
        self._bytes = self._kept_bytes = 0
        self._linked: dict[int, SnapshotEntry] = {}

    def pack(self, upper: Path) -> list[SnapshotEntry]:
        info = upper.lstat()
        with _let_in(str(upper), None, info):
            top = os.open(upper, beneath.FOLDER)
            try:
                if stat.S_IMODE(info.st_mode) != 0o755:
                    self._archive.addfile(self._member(".", info, tarfile.DIRTYPE))
                self._folder(top, "", 0, info.st_dev)
            finally:
                os.close(top)
        return self._entries

    def _folder(self, folder: int, prefix: str, depth: int, device: int) -> None:
        if depth > MAX_DEPTH:
            raise SnapshotRefusedError(f"folders are nested more than {MAX_DEPTH} deep")
        for name in sorted(os.listdir(folder)):
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            path = prefix + name
            if path in self._left_out:
                continue
            if info.st_dev != device:
                raise SnapshotRefusedError(f"{path} is on another filesystem")
            if stat.S_ISDIR(info.st_mode):
                self._subfolder(folder, name, path, depth, info)
            else:
                self._leaf(folder, name, path, info)

    def add(self, archive: tarfile.TarFile) -> None:
        """Go on with what an archive has; see ``Instead``."""
        known = {(entry.path, entry.kind) for entry in self._entries}
        for member in archive:
            path, above = member.name, member.name.rpartition("/")[0]
            if member.isreg():
                self._count(member.size)
                self._content(member, archive.extractfile(member))
            elif member.isdir() and (path, "dir") not in known:
                self._archive.addfile(member)
                self._add(SnapshotEntry(path, "dir", mode=member.mode))
            elif member.ischr() and (above, "deleted") not in known:
                self._archive.addfile(member)
                self._add(SnapshotEntry(path, "deleted", mode=0))

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._limit_bytes:
            raise SnapshotRefusedError(f"more than {self._limit_bytes} bytes were left")

    def _content(self, member: tarfile.TarInfo, file: IO[bytes] | None) -> SnapshotEntry:
        assert file is not None, "a regular file has content"
        keep = member.size <= min(KEPT_FILE_BYTES, KEPT_TOTAL_BYTES - self._kept_bytes)
        read = _Read(file, member.size, keep=keep)
        self._archive.addfile(member, read)
        data = bytes(read.kept) if keep else None
        self._kept_bytes += len(data or b"")
        digest, mode = read.digest.hexdigest(), member.mode
        executable = bool(mode & 0o111)
        entry = SnapshotEntry(member.name, "file", member.size, executable, digest, data, mode)
        self._add(entry)
        return entry

    def _add(self, entry: SnapshotEntry) -> None:
        if len(os.fsencode(entry.path)) > MAX_PATH_BYTES:
            raise SnapshotRefusedError(f"a path is longer than {MAX_PATH_BYTES} bytes")
        self._entries.append(entry)
        if len(self._entries) > MAX_ENTRIES:
            raise SnapshotRefusedError(f"more than {MAX_ENTRIES} files and folders were left")

    def _subfolder(
        self, parent: int, name: str, path: str, depth: int, info: os.stat_result
    ) -> None:
        with _let_in(name, parent, info):
            folder = os.open(name, beneath.FOLDER, dir_fd=parent)
            try:
                member = self._member(path, info, tarfile.DIRTYPE)
                if _opaque(folder):
                    member.pax_headers = {_HEADER: "y"}
                    self._add(SnapshotEntry(path, "deleted", mode=0))
                self._archive.addfile(member)
                self._add(SnapshotEntry(path, "dir", mode=member.mode))
                self._folder(folder, path + "/", depth + 1, info.st_dev)
            finally:
                os.close(folder)

    def _leaf(self, folder: int, name: str, path: str, info: os.stat_result) -> None:
        mode = stat.S_IMODE(info.st_mode)
        if stat.S_ISREG(info.st_mode):
            self._file(folder, name, path, info)
        elif stat.S_ISLNK(info.st_mode):
            target = os.readlink(name, dir_fd=folder)
            member = self._member(path, info, tarfile.SYMTYPE)
            member.linkname = target
            self._archive.addfile(member)
            digest = hashlib.sha256(os.fsencode(target)).hexdigest()
            self._add(SnapshotEntry(path, "symlink", len(target), digest=digest, mode=0o777))
        elif stat.S_ISCHR(info.st_mode) and info.st_rdev == 0:
            self._archive.addfile(self._member(path, info, tarfile.CHRTYPE))
            self._add(SnapshotEntry(path, "deleted", mode=0))
        else:
            if stat.S_ISFIFO(info.st_mode):
                self._archive.addfile(self._member(path, info, tarfile.FIFOTYPE))
            self._add(SnapshotEntry(path, "other", mode=mode))

    def _file(self, folder: int, name: str, path: str, info: os.stat_result) -> None:
        known = self._linked.get(info.st_ino)
        if known is not None:
            member = self._member(path, info, tarfile.LNKTYPE)
            member.linkname = known.path
            self._archive.addfile(member)
            self._add(_renamed(known, path))
            return
        self._count(info.st_size)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with _let_in(name, folder, info):
            opened = os.open(name, flags, dir_fd=folder)
        with os.fdopen(opened, "rb") as file:
            if os.fstat(file.fileno()).st_ino != info.st_ino:
                raise SnapshotRefusedError(f"{path} changed while it was read")
            member = self._member(path, info, tarfile.REGTYPE)
            member.size = info.st_size
            entry = self._content(member, file)
        if info.st_nlink > 1:
            self._linked[info.st_ino] = entry

    def _member(self, path: str, info: os.stat_result, kind: bytes) -> tarfile.TarInfo:
        member = tarfile.TarInfo(path)
        member.type = kind
        member.mode = stat.S_IMODE(info.st_mode)
        member.mtime = max(int(info.st_mtime), 0)
        if self._base is not None:
            inner = (info.st_uid - self._base, info.st_gid - self._base)
            member.uid, member.gid = (id_ if 0 <= id_ < IDS else 0 for id_ in inner)
        return member


class _Read(io.RawIOBase):
    """A file of a known size, digested as it is read; a shorter one ends in zeros."""

    def __init__(self, file: IO[bytes], size: int, *, keep: bool) -> None:
        self._file, self._left, self._keep = file, size, keep
        self.digest = hashlib.sha256()
        self.kept = bytearray()

    def read(self, size: int = -1, /) -> bytes:
        size = self._left if size < 0 else min(size, self._left)
        data = self._file.read(size)
        data += bytes(size - len(data))
        self._left -= size
        self.digest.update(data)
        if self._keep:
            self.kept += data
        return data


def _renamed(entry: SnapshotEntry, path: str) -> SnapshotEntry:
    return SnapshotEntry(path, "file", entry.size, entry.executable, entry.digest, None, entry.mode)


@contextlib.contextmanager
def _let_in(name: str, folder: int | None, info: os.stat_result) -> Generator[None]:
    """Open for ourselves what its owner, who we are, has shut; it is shut again at the end."""
    mode = stat.S_IMODE(info.st_mode)
    shut = os.geteuid() != 0 and mode & stat.S_IRWXU != stat.S_IRWXU
    if shut:
        os.chmod(name, mode | stat.S_IRWXU, dir_fd=folder)
    try:
        yield
    finally:
        if shut:
            os.chmod(name, mode, dir_fd=folder)


def _opaque(folder: int) -> bool:
    for key in _OPAQUE_KEYS:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, key) == b"y":
                return True
    return False


def unpack(
    states: Iterable[Path],
    upper: Path,
    *,
    base: int | None = None,
    opaque: str = OPAQUE,
    left_out: Collection[str] = (),
) -> None:
    """Lay states over one another into an upper folder, in their order, but for some paths.

    ``base`` as in ``pack``; None leaves owners as they come out. Raises ImageError.
    """
    whole: set[str] = set()
    for state in states:
        try:
            with (
                tarfile.open(state, "r:") as archive,
                Unpacker(upper, base, follow=False) as into,
            ):
                for member in without(left_out, archive, f"state {state.name}"):
                    _lay(archive, member, into, opaque, whole)
        except (tarfile.TarError, OSError, EOFError, KeyError) as error:
            raise ImageError(f"state {state} cannot be unpacked: {error}") from error


def without(
    left_out: Collection[str], archive: tarfile.TarFile, what: str
) -> Iterator[tarfile.TarInfo]:
    """Yield a state's members but for some paths; what is a hard link to one becomes its content.

    Raises ImageError, KeyError where a hard link leads to nothing.
    """
    for member in members(archive, what):
        if inner_path(member.name) in left_out:
            continue
        if member.islnk() and inner_path(member.linkname) in left_out:
            content = copy.copy(archive.getmember(member.linkname))
            content.name = member.name
            yield content
        else:
            yield member


def _lay(
    archive: tarfile.TarFile, member: tarfile.TarInfo, into: Unpacker, opaque: str, whole: set[str]
) -> None:
    """``whole`` are the folders that hide the image's: what is deleted there just is not there, a
    mark of it would be listed."""
    path = inner_path(member.name)
    if member.ischr() and path:
        if (member.devmajor, member.devminor) == (0, 0):
            parent, name = into.parent(path)
            into.clear(parent, name)
            whole.discard(path)
            if any(path.startswith(f"{folder}/") for folder in whole):
                return
            os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent)
        return
    if not (member.isdir() and path):
        into.put(archive, member)
        return
    parent, name = into.parent(path)
    hides = _HEADER in member.pax_headers or _is_deleted(parent, name)
    if hides:
        into.clear(parent, name)
    into.put(archive, member)
    if hides:
        whole.add(path)
        os.setxattr(f"/proc/self/fd/{parent}/{name}", opaque, b"y", follow_symlinks=False)


def _is_deleted(parent: int, name: str) -> bool:
    try:
        return stat.S_ISCHR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
