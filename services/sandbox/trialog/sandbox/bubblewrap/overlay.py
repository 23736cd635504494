"""Reading an overlay's upper folder: what a trial wrote, read as if it wanted to trick us.

Every folder is opened relative to its parent, following no symlink and staying on the same
filesystem (what openat2 calls BENEATH, NO_SYMLINKS and NO_XDEV); files are looked at through
O_PATH before they are opened, and read with a bound. ``take`` wants everything inside dead.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trialog.sandbox.errors import SnapshotRefusedError
from trialog.sandbox.snapshot import Snapshot, SnapshotEntry

MAX_DEPTH = 128
MAX_ENTRIES = 100_000
KEPT_FILE_BYTES = 1 << 20
KEPT_TOTAL_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class Usage:
    """What an upper folder takes on the disk."""

    disk_bytes: int
    entries: int


def take(upper: Path, limit_bytes: int) -> Snapshot:
    """Return everything that differs from the world.

    Raises SnapshotRefusedError above ``limit_bytes`` of content, or above the caps on entries and
    depth. Unreadable files and folders are made readable: nothing runs that could mind.
    """
    upper.chmod(0o700)  # the agent may have shut the world's own folder
    return Snapshot(tuple(sorted(_Taker(limit_bytes).walk(upper), key=lambda entry: entry.path)))


def usage(upper: Path) -> Usage:
    """Measure an upper folder, which may be changing or going; what vanishes or is shut is skipped.

    Nothing may hide below the depth at which a snapshot is refused: it counts as too many entries.
    """
    try:
        top = _open_top(upper)
    except (PermissionError, FileNotFoundError):
        return Usage(0, 0)
    try:
        return _usage(top, 0, set())
    finally:
        os.close(top)


def _usage(folder: int, depth: int, linked: set[int]) -> Usage:
    if depth > MAX_DEPTH:
        return Usage(0, MAX_ENTRIES + 1)
    disk_bytes, entries = 0, 0
    for info, name in _stats(folder):
        if info.st_ino not in linked:  # a file of several names takes its place once
            disk_bytes += info.st_blocks * _BLOCK_BYTES
        if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
            linked.add(info.st_ino)
        entries += 1
        if not stat.S_ISDIR(info.st_mode):
            continue
        try:
            subfolder = os.open(name, _FOLDER, dir_fd=folder)
        except OSError:
            continue
        try:
            below = _usage(subfolder, depth + 1, linked)
        finally:
            os.close(subfolder)
        disk_bytes, entries = disk_bytes + below.disk_bytes, entries + below.entries
    return Usage(disk_bytes, entries)


def _open_top(upper: Path) -> int:
    return os.open(upper, _FOLDER)


def _stats(folder: int) -> Iterator[tuple[os.stat_result, str]]:
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            yield os.stat(name, dir_fd=folder, follow_symlinks=False), name


class _Taker:
    """One pass over an upper folder, counting against the caps."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._entries = 0
        self._kept_bytes = 0

    def walk(self, upper: Path) -> Iterator[SnapshotEntry]:
        top = _open_top(upper)
        try:
            yield from self._folder(top, "", 0, os.fstat(top).st_dev)
        finally:
            os.close(top)

    def _folder(self, folder: int, prefix: str, depth: int, device: int) -> Iterator[SnapshotEntry]:
        if depth > MAX_DEPTH:
            raise SnapshotRefusedError(f"folders are nested more than {MAX_DEPTH} deep")
        for info, name in _stats(folder):
            self._entries += 1
            if self._entries > MAX_ENTRIES:
                raise SnapshotRefusedError(f"more than {MAX_ENTRIES} files and folders were left")
            path = prefix + name
            if info.st_dev != device:
                raise SnapshotRefusedError(f"{path} is on another filesystem")
            if stat.S_ISDIR(info.st_mode):
                yield from self._subfolder(folder, name, path, depth, info)
            else:
                yield self._entry(folder, name, path, info)

    def _subfolder(
        self, parent: int, name: str, path: str, depth: int, info: os.stat_result
    ) -> Iterator[SnapshotEntry]:
        if info.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            _let_in(name, parent)
        folder = os.open(name, _FOLDER, dir_fd=parent)
        try:
            if _opaque(folder):  # the world's folder was removed and made anew
                yield SnapshotEntry(path, "deleted")
            yield SnapshotEntry(path, "dir")
            yield from self._folder(folder, path + "/", depth + 1, info.st_dev)
        finally:
            os.close(folder)

    def _entry(self, folder: int, name: str, path: str, info: os.stat_result) -> SnapshotEntry:
        mode = info.st_mode
        if stat.S_ISREG(mode):
            return self._file(folder, name, path, info)
        if stat.S_ISLNK(mode):
            target = os.fsencode(os.readlink(name, dir_fd=folder))
            digest = hashlib.sha256(target).hexdigest()
            return SnapshotEntry(path, "symlink", len(target), digest=digest)
        if stat.S_ISCHR(mode) and info.st_rdev == 0:
            return SnapshotEntry(path, "deleted")
        return SnapshotEntry(path, "other")

    def _file(self, folder: int, name: str, path: str, info: os.stat_result) -> SnapshotEntry:
        self._bytes += info.st_size
        if self._bytes > self._limit_bytes:
            raise SnapshotRefusedError(f"more than {self._limit_bytes} bytes were left")
        if not info.st_mode & stat.S_IRUSR:
            _let_in(name, folder)
        keep = info.st_size <= min(KEPT_FILE_BYTES, KEPT_TOTAL_BYTES - self._kept_bytes)
        digest, kept = hashlib.sha256(), bytearray()
        look = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
        try:
            if os.fstat(look).st_ino != info.st_ino:
                raise SnapshotRefusedError(f"{path} changed while it was read")
            with open(f"/proc/self/fd/{look}", "rb", opener=_nonblocking) as file:
                left = info.st_size
                while left and (chunk := file.read(min(left, _CHUNK_BYTES))):
                    left -= len(chunk)
                    digest.update(chunk)
                    if keep:
                        kept += chunk
        finally:
            os.close(look)
        self._kept_bytes += len(kept)
        executable = bool(info.st_mode & 0o111)
        data = bytes(kept) if keep else None
        return SnapshotEntry(path, "file", info.st_size, executable, digest.hexdigest(), data)


def _nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _let_in(name: str, folder: int) -> None:
    os.chmod(name, 0o700, dir_fd=folder)


def _opaque(folder: int) -> bool:
    for key in ("user.overlay.opaque", "trusted.overlay.opaque"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, key) == b"y":
                return True
    return False
