"""Reads files out of an archive that an agent may have filled: regular files only, names checked,
all sizes capped, nothing ever written to where a name says."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, NamedTuple, cast

MAX_DEPTH = 64
MAX_NAME_BYTES = 255
_MOST_TOLD = 1000
_MOST_HEADER = 1 << 20  # a header that asks for more at once is made to exhaust memory
_MOST_UNPACKED = 1 << 30
_MOST_PLAIN = 1 << 50
_CHUNK = 1 << 18
_GZIP = b"\x1f\x8b"


class Unpacked(NamedTuple):
    """A regular file of an archive."""

    parts: tuple[str, ...]
    data: bytes


class UnsafeNameError(ValueError):
    """A name that could lead somewhere else, or that no file system takes."""


@dataclass(slots=True)
class Allowance:
    """How much one trial may still hand out; ``left_out`` says of what is not, and why."""

    files: int = 20_000
    bytes: int = 512 << 20
    file_bytes: int = 64 << 20
    left_out: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    more_left_out: int = 0

    def refuse(self, name: str, reason: str) -> None:
        """Say that something is left out. Of very many only the first are named."""
        if len(self.left_out) < _MOST_TOLD:
            self.left_out.append((shown(name), reason))
        else:
            self.more_left_out += 1

    def take(self, name: str, n_bytes: int) -> bool:
        """Whether a file of so many bytes is handed out; it is counted then."""
        if n_bytes > self.file_bytes:
            self.refuse(name, f"has {n_bytes} bytes; the limit of a file is {self.file_bytes}")
        elif n_bytes > self.bytes:
            self.refuse(name, "the trial's files are above their limit together")
        elif not self.files:
            self.refuse(name, "the trial has too many files")
        else:
            self.files -= 1
            self.bytes -= n_bytes
            return True
        return False


def parts_of(name: str) -> tuple[str, ...]:
    """Return the parts of a relative path. Raises UnsafeNameError."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts or not parts:
        raise UnsafeNameError("its path leads out of its folder")
    if len(parts) > MAX_DEPTH:
        raise UnsafeNameError(f"lies more than {MAX_DEPTH} folders deep")
    for part in parts:
        if not part.isprintable() or "\\" in part:
            raise UnsafeNameError("its name is not plain text")
        if len(part.encode()) > MAX_NAME_BYTES:
            raise UnsafeNameError("its name is too long")
    return parts


def shown(name: str) -> str:
    """Return a name as it can be told: nothing in it is a control character or half a pair."""
    text = name if len(name) <= 300 else f"{name[:297]}..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def files_of(
    source: IO[bytes], wanted: Callable[[tuple[str, ...]], bool], allowance: Allowance
) -> Iterator[Unpacked]:
    """Yield the wanted regular files of a tar archive, which may be gzipped, in their order; the
    source is at its beginning.

    Links, devices and what is above the allowance are told to it. A broken archive ends early.
    """
    seen: set[tuple[str, ...]] = set()
    try:
        with tarfile.open(fileobj=_opened(source), mode="r:", errorlevel=0) as archive:
            while (member := archive.next()) is not None:
                # It would keep them all; the type's stub does not know them.
                archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue]
                found = _taken(archive, member, wanted, allowance, seen)
                if found is not None:
                    yield found
    except Exception as error:  # a hostile archive breaks its reader in any way it likes
        allowance.refuse("(the archive)", f"cannot be read on: {type(error).__name__}")


def _taken(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    wanted: Callable[[tuple[str, ...]], bool],
    allowance: Allowance,
    seen: set[tuple[str, ...]],
) -> Unpacked | None:
    if member.isdir():
        return None
    try:
        parts = parts_of(member.name)
    except UnsafeNameError as error:
        allowance.refuse(member.name, str(error))
        return None
    if not wanted(parts):
        return None
    if not member.isreg():
        allowance.refuse(member.name, "is no regular file")
        return None
    if parts in seen:
        allowance.refuse(member.name, "is there twice")
        return None
    file = archive.extractfile(member)
    if file is None or not allowance.take(member.name, member.size):
        return None
    seen.add(parts)
    return Unpacked(parts, b"".join(iter(lambda: file.read(_CHUNK), b"")))


def _opened(source: IO[bytes]) -> IO[bytes]:
    """A plain archive is as large as it is; a compressed one may be far larger."""
    gzipped = source.read(len(_GZIP)) == _GZIP
    source.seek(0)
    if not gzipped:
        return cast("IO[bytes]", _Bounded(source, _MOST_PLAIN))
    unzipped = cast("IO[bytes]", gzip.GzipFile(fileobj=source))
    return cast("IO[bytes]", _Bounded(unzipped, _MOST_UNPACKED))


class _Bounded:
    """A file that is not read beyond a limit, nor much at once: a compressed kilobyte may stand
    for a gigabyte, and a header may claim to be as large."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._file, self._most, self._at = file, most, 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, a megabyte at most."""
        if size < 0 or size > _MOST_HEADER:
            raise tarfile.ReadError("asks for too much at once")
        found = self._file.read(size)
        self._at += len(found)
        return found

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, position: int) -> int:
        """Go to a position below the limit."""
        if position > self._most:
            raise tarfile.ReadError("is too large")
        self._at = self._file.seek(position)
        return self._at
