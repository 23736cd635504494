"""A task as bytes: a tar whose every byte follows from the task's content."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from typing import IO

from trialog.proto.tasks.files import Entry, Files, TaskProblem, check_path


def pack(files: Files) -> bytes:
    """Return the tar of a task's entries, in the order of their paths, without times or owners."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, files, "")
    return out.getvalue()


def pack_many(tasks: Iterable[tuple[str, Files]], out: IO[bytes]) -> None:
    """Write a gzipped tar of several tasks, each in a folder of its name: what is uploaded."""
    with tarfile.open(
        fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT, compresslevel=1
    ) as archive:
        for name, files in tasks:
            _add(archive, {"": Entry("dir"), **files}, f"{name}/")


def _add(archive: tarfile.TarFile, files: Files, prefix: str) -> None:
    for path in sorted(files):
        entry = files[path]
        member = tarfile.TarInfo(f"{prefix}{path}".rstrip("/"))
        match entry.kind:
            case "file":
                member.size = len(entry.data)
                member.mode = 0o755 if entry.executable else 0o644
            case "dir":
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            case "symlink":
                member.type, member.mode = tarfile.SYMTYPE, 0o777
                member.linkname = entry.target
        archive.addfile(member, io.BytesIO(entry.data))


def unpack(data: bytes) -> dict[str, Entry]:
    """Return the entries of a packed task. Raises TaskProblem for bytes that are none."""
    try:
        return dict(_entries(data))
    except (tarfile.TarError, UnicodeError, EOFError, ValueError) as error:
        raise TaskProblem("", f"this is no packed task: {error}") from None


def _entries(data: bytes) -> Iterator[tuple[str, Entry]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            path = check_path(member.name)
            if member.isdir():
                yield path, Entry("dir")
            elif member.issym():
                yield path, Entry("symlink", target=member.linkname)
            elif (content := archive.extractfile(member)) is not None and member.isreg():
                executable = bool(member.mode & 0o100)
                yield path, Entry("file", content.read(), executable=executable)
            else:
                raise TaskProblem(path, "is no file, folder or link")
