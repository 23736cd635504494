"""Unpacking archives of whole root filesystems without trusting them.

Everything stays below the target: parents are opened as if it were the root, the last part of a
name is never followed. Hard links are made within the target only; devices and sockets are left
out. Folders get their modes last, so that a read-only one can be filled.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from trialog.sandbox.errors import ImageError
from trialog.sandbox.rootfs import beneath
from trialog.sandbox.trees import remove_tree

MAX_BYTES = 64 << 30
MAX_ENTRIES = 2_000_000
MAX_PATH_BYTES = 4000
IDS = 65_536
NOBODY = 65_534
_LATEST_MTIME = 1 << 40


class Unpacker:
    """Puts an archive's members below a folder.

    ``base`` is added to every owner's id (None: owners are left as they come out). With ``follow``
    folders may be reached through symlinks inside, as in a layer over another.
    """

    def __init__(self, folder: Path, base: int | None, *, follow: bool = True) -> None:
        self._base = base
        self._follow = follow
        self._folder = folder
        self._top = os.open(folder, beneath.FOLDER)
        self._folders: dict[str, tarfile.TarInfo] = {}
        self._entries = self._bytes = 0
        self._near: tuple[str, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._leave()
            os.close(self._top)

    def put(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Put one member in place of whatever is there. Raises ImageError, OSError."""
        path = inner_path(member.name)
        self._count(member)
        if not path:
            self._folders[""] = member
            return
        parent, name = self.parent(path)
        if member.isdir():
            self._put_folder(parent, name, path, member)
            return
        if not (member.isreg() or member.issym() or member.islnk() or member.isfifo()):
            return
        target = self._linked(member) if member.islnk() else None
        self.clear(parent, name)
        if member.isreg():
            self._put_file(archive, parent, name, member)
        elif member.issym():
            os.symlink(member.linkname, name, dir_fd=parent)
            self._own(name, parent, member)
        elif member.isfifo():
            os.mkfifo(name, member.mode & 0o777, dir_fd=parent)
            self._own(name, parent, member)
        elif target is not None:
            _hard_link(target, name, parent, member)

    def parent(self, path: str) -> tuple[int, str]:
        """Return the open folder of a path, made when it is missing, and the path's last part."""
        above, _, name = path.rpartition("/")
        if self._near is None or self._near[0] != above:
            self._leave()
            found = beneath.make_folder(self._top, above, self._base, follow=self._follow)
            self._near = above, found
        return self._near[1], name

    def clear(self, parent: int, name: str) -> bool:
        """Remove what has a name in an open folder; False when there was nothing."""
        try:
            os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            return False
        except (IsADirectoryError, PermissionError):
            remove_tree(Path(f"/proc/self/fd/{parent}") / name)
        return True

    def _leave(self) -> None:
        """Forget the folder that is open: another may have its name now."""
        if self._near is not None:
            os.close(self._near[1])
            self._near = None

    def _count(self, member: tarfile.TarInfo) -> None:
        self._entries += 1
        self._bytes += member.size if member.isreg() else 0
        if self._entries > MAX_ENTRIES or self._bytes > MAX_BYTES:
            raise ImageError(f"the archive is above {MAX_ENTRIES} files or {MAX_BYTES} bytes")

    def _put_folder(self, parent: int, name: str, path: str, member: tarfile.TarInfo) -> None:
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            with contextlib.suppress(OSError):
                os.close(os.open(name, beneath.FOLDER, dir_fd=parent))
                self._folders[path] = member
                return
            self.clear(parent, name)
            os.mkdir(name, 0o700, dir_fd=parent)
        self._folders[path] = member

    def _put_file(
        self, archive: tarfile.TarFile, parent: int, name: str, member: tarfile.TarInfo
    ) -> None:
        content = archive.extractfile(member)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=parent)
        with os.fdopen(fd, "wb") as file:
            if content is not None:
                shutil.copyfileobj(content, file, 1 << 20)
            if file.tell() != member.size:
                raise ImageError(f"{member.name!r} is cut short in its archive")
            self._own(fd, None, member)
            os.fchmod(fd, member.mode & 0o7777)
            file.flush()
            os.utime(fd, (_mtime(member), _mtime(member)))

    def _linked(self, member: tarfile.TarInfo) -> tuple[int, str]:
        above, _, name = inner_path(member.linkname).rpartition("/")
        return beneath.open_folder(self._top, above, follow=self._follow), name

    def _own(self, at: int | str, parent: int | None, member: tarfile.TarInfo) -> None:
        if self._base is not None:
            uid, gid = (id_ if 0 <= id_ < IDS else NOBODY for id_ in (member.uid, member.gid))
            uid, gid = uid + self._base, gid + self._base
            if isinstance(at, int):
                os.fchown(at, uid, gid)
            else:
                os.chown(at, uid, gid, dir_fd=parent, follow_symlinks=False)

    def _finish(self) -> None:
        """Deepest first: a folder that is shut needs not be entered any more."""
        for path in sorted(self._folders, reverse=True):
            member = self._folders[path]
            try:
                fd = beneath.open_folder(self._top, path, follow=self._follow)
            except (FileNotFoundError, NotADirectoryError):
                continue  # replaced later on
            try:
                self._own(fd, None, member)
                os.fchmod(fd, member.mode & 0o7777)
                os.utime(fd, (_mtime(member), _mtime(member)))
            finally:
                os.close(fd)


def members(archive: tarfile.TarFile, what: str) -> Iterator[tarfile.TarInfo]:
    """Yield an archive's members. Raises ImageError where it is broken."""
    try:
        yield from archive
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise ImageError(f"{what} cannot be read: {error}") from error


def inner_path(name: str) -> str:
    """Return a member's path below the target, empty for the target itself. Raises ImageError."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    path = "/".join(parts)
    if ".." in parts or "\0" in name or len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ImageError(f"{name[:120]!r} leads out of the image, or is too long")
    return path


def _hard_link(target: tuple[int, str], name: str, parent: int, member: tarfile.TarInfo) -> None:
    folder, linked = target
    try:
        os.link(linked, name, src_dir_fd=folder, dst_dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError as error:
        raise ImageError(f"{member.name!r} is a hard link to nothing") from error
    finally:
        os.close(folder)


def _mtime(member: tarfile.TarInfo) -> float:
    return float(min(max(member.mtime, 0), _LATEST_MTIME))
