"""Worlds unpacked on a host, one folder a digest, shared by every process and read-only in use."""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
from pathlib import Path

from trialog.sandbox.errors import WorldError
from trialog.sandbox.provider import check_digest
from trialog.sandbox.trees import remove_tree
from trialog.sandbox.worlds.archive import ArchiveEntry, entries

_libc = ctypes.CDLL(None, use_errno=True)


class WorldStore:
    """A folder of worlds; a world is there whole or not at all."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, digest: str) -> Path | None:
        """Return a world's folder, or None when it is not unpacked here."""
        folder = self._root / check_digest(digest)
        return folder if folder.is_dir() else None

    def prepare(self, digest: str, tar_bytes: bytes) -> Path:
        """Unpack an archive under its digest and return the folder.

        Unpacked aside, synced and renamed: of two processes that do it at once one wins and both
        go on, and a crash leaves no half world under the name. Raises WorldError.
        """
        if (known := self.path(digest)) is not None:
            return known
        if hashlib.sha256(tar_bytes).hexdigest() != digest:
            raise WorldError(f"the archive is not the one of digest {digest}")
        self._root.mkdir(parents=True, exist_ok=True)
        aside = self._root / f".new-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            aside.mkdir()
            _unpack(aside, tar_bytes)
            sync_filesystem(aside)
            final = self._root / digest
            try:
                aside.rename(final)
            except OSError:
                if not final.is_dir():
                    raise
            sync_folder(self._root)
            return final
        finally:
            remove_tree(aside)


def _unpack(folder: Path, tar_bytes: bytes) -> None:
    """Write files first and symlinks last, so no file can be written through a symlink."""
    links: list[ArchiveEntry] = []
    for entry in entries(tar_bytes):
        if entry.kind == "symlink":
            links.append(entry)
        else:
            _place(folder, entry)
    for link in links:
        _place(folder, link)


def _place(folder: Path, entry: ArchiveEntry) -> None:
    path = folder / entry.path
    try:
        if entry.kind == "dir":
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "symlink":
            path.symlink_to(entry.target)
            return
        with path.open("xb") as file:
            file.write(entry.data)
            os.fchmod(file.fileno(), entry.mode)
        # Times would differ from host to host; nothing may depend on them.
        os.utime(path, (0, 0))
    except (FileExistsError, NotADirectoryError) as error:
        raise WorldError(f"{entry.path!r} is in the archive twice or in two kinds") from error


def sync_filesystem(folder: Path) -> None:
    """Sync all at once: an fsync a file would take seconds at 20,000 files."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    """Sync a folder's names."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
