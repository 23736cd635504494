"""A tar archive of plain files, written to a file of the driver's own."""

from __future__ import annotations

import io
import tarfile
from typing import IO, Any

import msgspec

from trialog.driver.export.layout import Path
from trialog.driver.export.unpack import Allowance

_READ_BYTES = 1 << 16


class Archive:
    """Takes files by path; the first of a path counts, and none is a folder of another."""

    def __init__(self, out: IO[bytes], at: float) -> None:
        self._tar = tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._at = at
        self._files: set[Path] = set()
        self._folders: set[Path] = set()

    def add(self, path: Path, data: bytes, allowance: Allowance | None = None) -> bool:
        """Add a file; False when its name is taken, which the allowance is told."""
        known = _as_compared(path)
        above = {known[:n] for n in range(1, len(known))}
        if known in self._files | self._folders or above & self._files:
            if allowance is not None:
                allowance.refuse("/".join(path), "another file has its name")
            return False
        self._files.add(known)
        self._folders |= above
        member = tarfile.TarInfo("/".join(path))
        member.size, member.mode, member.mtime = len(data), 0o644, int(self._at)
        self._tar.addfile(member, io.BytesIO(data))
        return True

    def has(self, path: Path) -> bool:
        """Whether a file of this path is there."""
        return _as_compared(path) in self._files

    def add_json(self, path: Path, content: Any) -> bool:
        """Add a value as JSON text: indented for people, unless it is as long as token ids are."""
        text = msgspec.json.encode(content)
        if len(text) <= _READ_BYTES:
            text = msgspec.json.format(text, indent=2)
        return self.add(path, text + b"\n")

    def close(self) -> None:
        """Write the end of the archive."""
        self._tar.close()


def _as_compared(path: Path) -> Path:
    """Return a path as a file system compares it that knows no case."""
    return tuple(part.casefold() for part in path)
