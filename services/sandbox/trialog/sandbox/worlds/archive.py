"""Worlds as bytes: deterministic tar archives, and reading them without trusting them."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from trialog.sandbox.errors import WorldError

MAX_ENTRIES = 1_000_000
MAX_PATH_CHARS = 2_000
MAX_DEPTH = 64
MAX_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One file, folder or symlink of a world; ``path`` is relative and has no ``..``."""

    path: str
    kind: Literal["file", "dir", "symlink"]
    mode: int
    data: bytes = b""
    target: str = ""


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive of the files that depends on nothing but their paths and bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            member = tarfile.TarInfo(path)
            member.size = len(files[path])
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(files[path]))
    return out.getvalue()


def entries(tar_bytes: bytes) -> Iterator[ArchiveEntry]:
    """Yield the archive's entries in its order, each checked.

    Hard links and devices are refused, and so are absolute paths, ``..``, sparse files and
    symlinks that lead out of the world. Raises WorldError.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(tar_bytes), mode="r:") as archive:
            for count, member in enumerate(archive):
                if count >= MAX_ENTRIES:
                    raise WorldError(f"the archive has more than {MAX_ENTRIES} entries")
                entry = _entry(archive, member)
                if entry.path:
                    yield entry
    except (tarfile.TarError, UnicodeError, EOFError) as error:
        raise WorldError(f"the archive cannot be read: {error}") from error


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> ArchiveEntry:
    path = _relative(member.name)
    if member.issym():
        _check_target(path, member.linkname)
        return ArchiveEntry(path, "symlink", 0o777, target=member.linkname)
    if member.isdir():
        return ArchiveEntry(path, "dir", 0o755)
    content = archive.extractfile(member) if member.isreg() and not member.issparse() else None
    if content is None or not path:
        raise WorldError(f"{member.name!r} is neither a plain file, a folder nor a symlink")
    data = content.read()
    if len(data) != member.size:
        raise WorldError(f"{member.name!r} is cut short")
    return ArchiveEntry(path, "file", 0o755 if member.mode & 0o111 else 0o644, data=data)


def _relative(name: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise WorldError(f"{name!r} leads out of the world")
    longest = max((len(os.fsencode(part)) for part in parts), default=0)
    if len(name) > MAX_PATH_CHARS or len(parts) > MAX_DEPTH or longest > MAX_NAME_BYTES:
        raise WorldError(f"{name[:80]!r}... is too long or too deep")
    return "/".join(parts)


def _check_target(path: str, target: str) -> None:
    """A symlink may point anywhere below the world's root, never above or outside it."""
    depth = path.count("/")
    if not target or target.startswith("/") or "\0" in target:
        raise WorldError(f"symlink {path!r} to {target!r} leads out of the world")
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            raise WorldError(f"symlink {path!r} to {target!r} leads out of the world")
