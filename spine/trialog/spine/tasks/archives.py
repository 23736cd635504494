"""Reads an uploaded archive of tasks without trusting it: nothing of it is unpacked onto a disk.

The archive, a tar or a gzipped one, is spooled into a file without a name, which goes away with
its process; its size is counted as it comes and as it unpacks. Then its members are listed, each
checked, and read task by task.
"""

from __future__ import annotations

import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from trialog.proto.tasks import files as limits
from trialog.proto.tasks.files import Entry, TaskProblem, check_path
from trialog.proto.tasks.legacy import CONFIG
from trialog.proto.tasks.parse import parse
from trialog.proto.tasks.task import looks_like_task, no_task, read_task
from trialog.spine.tasks.folders import Read

MAX_MEMBERS = 100_000

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
# What the format reads into memory whole before it says what it is: names, and lists of them.
_MAX_HEADER_BYTES = 1 << 20
_HEADERS = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    }
)


class ArchiveTooLargeError(Exception):
    """An archive unpacks to more than the limit."""


class Spool:
    """Takes an archive piece by piece and keeps it unpacked, up to a limit of bytes.

    The file has no name: whatever happens to the process, nothing is left of it.
    """

    def __init__(self, folder: Path | None, limit_bytes: int) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - kept open
        self._limit_bytes = limit_bytes
        self._head = b""
        self._gzip: Any = None  # zlib's decompressor, whose type is private
        self._begun = False

    def write(self, data: bytes) -> None:
        """Take the next piece. Raises ArchiveTooLargeError, TaskProblem for broken gzip."""
        if not self._begun:
            data, self._head = self._head + data, b""
            if len(data) < len(_GZIP):
                self._head = data
                return
            self._begun = True
            if data.startswith(_GZIP):
                self._gzip = _gunzip()
        if self._gzip is None:
            self._keep(data)
        else:
            self._unzip(data)

    def _unzip(self, data: bytes) -> None:
        try:
            while data:
                self._keep(self._gzip.decompress(data, _CHUNK))
                data = self._gzip.unconsumed_tail
                if self._gzip.eof:
                    data = self._gzip.unused_data
                    if not data.startswith(_GZIP):
                        return  # padding, as tar and tapes leave it
                    self._gzip = _gunzip()
        except zlib.error as error:
            raise TaskProblem("", f"the archive's gzip is broken: {error}") from None

    def _keep(self, data: bytes) -> None:
        if self._file.tell() + len(data) > self._limit_bytes:
            raise ArchiveTooLargeError
        self._file.write(data)

    def finish(self) -> IO[bytes]:
        """Return the unpacked tar, at its beginning. Raises TaskProblem where it was cut short."""
        self._file.write(self._head)
        if self._gzip is not None and not self._gzip.eof:
            raise TaskProblem("", "the archive is cut short")
        self._file.seek(0)
        return self._file

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


def _gunzip() -> Any:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)


class _Member(tarfile.TarInfo):
    """A member whose extended headers have a limit: they are read whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        """Read a header; raises HeaderError."""
        member = super().frombuf(buf, encoding, errors)
        if member.type in _HEADERS and member.size > _MAX_HEADER_BYTES:
            raise tarfile.HeaderError("a header is too large")
        return member


def tasks_in(tar: IO[bytes]) -> Iterator[Read]:
    """Yield each task of an unpacked tar with its name, or what is wrong with it.

    Raises TaskProblem for what no archive of tasks holds: members that lead out of it, hard links,
    devices, a name given twice.
    """
    tar.seek(0)
    try:
        with tarfile.open(
            fileobj=tar, mode="r:", tarinfo=_Member, encoding="utf-8", errors="surrogateescape"
        ) as archive:
            members = _members(archive)
            _check_end(tar, members.values())
            tree = _tree(members)
            for name, home in _homes(tree):
                yield _read(archive, dict(_inside(members, tree, home)), name)
    except (tarfile.TarError, UnicodeError, EOFError, ValueError, OverflowError) as error:
        raise TaskProblem("", f"the archive cannot be read: {error}") from None


def _members(archive: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    found: dict[str, tarfile.TarInfo] = {}
    for member in archive:
        name = member.name.removeprefix("./").rstrip("/")
        if name in ("", ".") and member.isdir():
            continue
        path = check_path(name)
        if not (member.isdir() or member.issym() or (member.isreg() and not member.issparse())):
            kind = "a hard link" if member.islnk() else "no plain file, folder or symlink"
            raise TaskProblem(path, f"is {kind}", "pack files, folders and symlinks only")
        if path in found and not (member.isdir() and found[path].isdir()):
            raise TaskProblem(path, "is in the archive twice")
        if len(found) >= MAX_MEMBERS:
            raise TaskProblem("", f"the archive has more than {MAX_MEMBERS} members")
        found[path] = member
    return found


def _check_end(tar: IO[bytes], members: Iterable[tarfile.TarInfo]) -> None:
    """Raise TaskProblem where a tar does not end as one does: what reads it takes a broken header
    for its end, and would miss what comes after."""
    last = max(members, key=lambda member: member.offset_data, default=None)
    end = 0
    if last is not None:
        size = last.size if last.isreg() else 0
        end = last.offset_data + -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    tar.seek(end)
    if tar.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        where = f"after {last.name}" if last is not None else "at its beginning"
        raise TaskProblem("", f"the archive is cut short or broken {where}")


def _tree(members: Mapping[str, tarfile.TarInfo]) -> dict[str, set[str]]:
    """Return the names in each folder, by its path with a slash after it; the top's is empty."""
    tree: dict[str, set[str]] = {"": set()}
    for path in members:
        above = ""
        for name in path.split("/"):
            tree.setdefault(above, set()).add(name)
            above += f"{name}/"
    return tree


def _homes(tree: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Return the tasks of an archive: each with its name and the folder that it is in.

    It is a task itself, a folder of tasks, or one folder that is either.
    """
    home = ""
    for _ in range(2):
        if looks_like_task(tree.get(home, ())):
            return [(home.rstrip("/"), home)]
        shown = sorted(name for name in tree.get(home, ()) if not name.startswith("."))
        found = [name for name in shown if looks_like_task(tree.get(f"{home}{name}/", ()))]
        if len(found) > limits.MAX_TASKS:
            what = f"holds {len(found)} tasks; at most {limits.MAX_TASKS}"
            raise TaskProblem("the archive", what)
        if found:
            return [(name, f"{home}{name}/") for name in found]
        if len(shown) != 1:
            break
        home = f"{shown[0]}/"
    raise no_task("the archive")


def _inside(
    members: Mapping[str, tarfile.TarInfo], tree: Mapping[str, set[str]], home: str
) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Yield a task's members by their paths in it, without what is hidden at its top."""
    todo = [name for name in tree[home] if not name.startswith(".")]
    while todo:
        path = todo.pop()
        if (member := members.get(home + path)) is not None:
            yield path, member
        todo += [f"{path}/{name}" for name in tree.get(f"{home}{path}/", ())]


def _read(archive: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo], name: str) -> Read:
    try:
        files = _entries(archive, members)
        name = _named(name, files)
        return name, read_task(name, files)
    except TaskProblem as problem:
        return name or "task", problem


def _named(name: str, files: Mapping[str, Entry]) -> str:
    """Return a task's name: its folder's, else what its task.toml calls it."""
    if name or CONFIG not in files:
        return name or "task"
    config, _ = parse(files[CONFIG].data)
    said = (config.task or {}).get("name")
    last = said.rpartition("/")[2] if isinstance(said, str) else ""
    return check_path(last) if last else "task"


def _entries(archive: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo]) -> dict[str, Entry]:
    """Return a task's entries. What is beyond a limit is not read. Raises TaskProblem."""
    if len(members) > limits.MAX_ENTRIES:
        raise limits.too_many()
    sizes = {path: member.size for path, member in members.items() if member.isreg()}
    for path in sorted(sizes):
        if sizes[path] > limits.MAX_FILE_BYTES:
            raise limits.too_large(path, sizes[path])
    if sum(sizes.values()) > limits.MAX_TASK_BYTES:
        raise limits.too_much()
    return {path: _entry(archive, members[path], path) for path in sorted(members)}


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> Entry:
    if member.isdir():
        return Entry("dir")
    if member.issym():
        try:
            member.linkname.encode()
        except UnicodeEncodeError:
            raise TaskProblem(name, "is a link to a name that is not UTF-8", "rename it") from None
        return Entry("symlink", target=member.linkname)
    content = archive.extractfile(member)
    data = content.read() if content is not None else b""
    if len(data) != member.size:
        raise TaskProblem(name, "is cut short")
    return Entry("file", data, executable=bool(member.mode & 0o100))
