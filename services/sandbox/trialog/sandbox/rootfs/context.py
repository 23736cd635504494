"""A build context: what COPY and ADD may take from the folder of a Dockerfile."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trialog.sandbox.bubblewrap.wire import Put
from trialog.sandbox.errors import FileRefusedError, ImageError
from trialog.sandbox.rootfs import beneath, reading, transfer
from trialog.sandbox.rootfs.ignore import NAME, Ignore

MAX_DEPTH = 128
_MAX_TEXT_BYTES = 4 << 20
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom files are given to, and their mode where COPY says one."""

    uid: int = 0
    gid: int = 0
    mode: int | None = None


class Context:
    """The folder, without what ``.dockerignore`` leaves out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        has_ignore = (folder / NAME).exists()
        self._ignore = Ignore.parse(read_text(folder, NAME)) if has_ignore else Ignore()

    def digest(self) -> str:
        """Return the hex SHA-256 of all paths, modes and contents. Raises ImageError."""
        content = hashlib.sha256()
        for path, folder, info in self._walk("", self._top(), 0):
            name = path.rpartition("/")[2]
            content.update(f"{path!r} {stat.S_IFMT(info.st_mode)} {info.st_mode & 0o777} ".encode())
            if stat.S_ISLNK(info.st_mode):
                content.update(os.fsencode(os.readlink(name, dir_fd=folder)))
            elif stat.S_ISREG(info.st_mode):
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
                with os.fdopen(fd, "rb") as file:
                    content.update(hashlib.file_digest(file, "sha256").digest())
        return content.hexdigest()

    def find(self, pattern: str) -> list[str]:
        """Return the paths that a source of COPY means, sorted. Raises ImageError when none is."""
        plain = "/".join(part for part in pattern.split("/") if part not in ("", "."))
        if ".." in plain.split("/"):
            raise ImageError(f"{pattern} leads out of the build context")
        if not plain:
            return [""]
        if _WILD.search(plain) is None:
            found = [plain] if self._info(plain) is not None else []
        else:
            parts = plain.split("/")
            walked = self._walk("", self._top(), 0)
            found = [path for path, _, _ in walked if _matches(path.split("/"), parts)]
        found = [path for path in found if not self._ignore.leaves_out(path)]
        if not found:
            raise ImageError(f"{pattern} is not in the build context")
        return sorted(found)

    def is_folder(self, path: str) -> bool:
        """Tell whether a path of the context is a folder."""
        info = self._info(path)
        return info is not None and stat.S_ISDIR(info.st_mode)

    def file_entries(self, path: str, target: str, owner: Owner) -> Iterator[Put]:
        """Yield what puts one file at a path inside."""
        above, _, name = path.rpartition("/")
        folder = self._open(above)
        try:
            yield from _given(transfer.file_entries(folder, name, target, owner.mode), owner)
        except (OSError, FileRefusedError) as error:
            raise ImageError(f"{path} cannot be copied: {error}") from error
        finally:
            os.close(folder)

    def folder_entries(self, path: str, target: str, owner: Owner) -> Iterator[Put]:
        """Yield what puts a folder's content below a path inside."""
        prefix = f"{path}/" if path else ""
        for each, folder, info in self._walk(prefix, self._open(path), prefix.count("/")):
            name = each.rpartition("/")[2]
            place = f"{target.rstrip('/')}/{each.removeprefix(prefix)}"
            mode = stat.S_IMODE(info.st_mode) if owner.mode is None else owner.mode
            if stat.S_ISDIR(info.st_mode):
                yield Put("d", place, mode, b"", owner.uid, owner.gid)
            elif stat.S_ISLNK(info.st_mode):
                link = os.fsencode(os.readlink(name, dir_fd=folder))
                yield Put("l", place, 0o777, link, owner.uid, owner.gid)
            elif stat.S_ISREG(info.st_mode):
                yield from _given(transfer.file_entries(folder, name, place, owner.mode), owner)

    def _top(self) -> int:
        return self._open("")

    def _open(self, path: str) -> int:
        try:
            top = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return beneath.open_folder(top, path, follow=False)
            finally:
                os.close(top)
        except OSError as error:
            raise ImageError(f"the build context's {path or 'folder'}: {error.strerror}") from error

    def _info(self, path: str) -> os.stat_result | None:
        above, _, name = path.rpartition("/")
        if not name:
            return self._folder.stat()
        try:
            folder = self._open(above)
        except ImageError:
            return None
        try:
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        finally:
            os.close(folder)

    def _walk(
        self, prefix: str, folder: int, depth: int
    ) -> Iterator[tuple[str, int, os.stat_result]]:
        """Yield all below an open folder, which is closed at the end, in order."""
        try:
            if depth > MAX_DEPTH:
                raise ImageError(f"the build context is nested more than {MAX_DEPTH} folders deep")
            for name in sorted(os.listdir(folder)):
                reading.check()
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                path, left_out = prefix + name, self._ignore.leaves_out(prefix + name)
                if not left_out:
                    yield path, folder, info
                if stat.S_ISDIR(info.st_mode) and (not left_out or self._ignore.brings_back):
                    below = os.open(name, beneath.FOLDER, dir_fd=folder)
                    yield from self._walk(path + "/", below, depth + 1)
        finally:
            os.close(folder)


def _given(entries: Iterator[Put], owner: Owner) -> Iterator[Put]:
    for each in entries:
        yield Put(each.kind, each.path, each.mode, each.data, owner.uid, owner.gid)


def _matches(path: list[str], pattern: list[str]) -> bool:
    return len(path) == len(pattern) and all(map(fnmatch.fnmatchcase, path, pattern))


def read_text(folder: Path, name: str) -> str:
    """Return a text file of a context. Raises ImageError naming the file."""
    try:
        path = folder / name
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ImageError(f"{name} is not a plain file")
        return reading.text(path, _MAX_TEXT_BYTES)
    except (OSError, UnicodeError) as error:
        raise ImageError(f"{name} cannot be read: {error}") from error
