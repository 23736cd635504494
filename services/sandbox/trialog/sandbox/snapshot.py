"""What a trial left behind: the difference between its fork and the pristine world."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

from trialog.sandbox.errors import FileMissingError, FileRefusedError

Kind = Literal["file", "symlink", "dir", "deleted", "other"]


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One path that differs from the world.

    ``digest`` is the hex SHA-256 of a file's bytes or of a symlink's target, else empty. ``data``
    is a regular file's content when it is small enough to be kept. ``other`` is a FIFO, socket or
    device: named, never opened. ``mode`` are the permission bits, where they are part of what the
    trial left (None for the reference world, of which only ``executable`` counts).
    """

    path: str
    kind: Kind
    size: int = 0
    executable: bool = False
    digest: str = ""
    data: bytes | None = None
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All differences, in order of their path."""

    entries: tuple[SnapshotEntry, ...]

    def files_written(self) -> list[str]:
        """Return the paths of everything written that is no folder, sorted."""
        return sorted(e.path for e in self.entries if e.kind in ("file", "symlink", "other"))

    def read(self, path: str) -> bytes:
        """Return a written regular file's bytes.

        Raises FileMissingError, or FileRefusedError for anything that is not a small regular file.
        """
        entry = next((e for e in self.entries if e.path == path), None)
        if entry is None or entry.kind == "deleted":
            raise FileMissingError(f"{path} was not written")
        if entry.kind != "file":
            raise FileRefusedError(f"{path} is not a regular file ({entry.kind})")
        if entry.data is None:
            raise FileRefusedError(f"{path} has {entry.size} bytes, too many to be kept")
        return entry.data

    def digest(self) -> str:
        """Return the hex SHA-256 of the final state's meaning: paths, kinds, modes and content.

        Folders count where modes do: elsewhere a folder is nothing but its files' path.
        """
        rows = [_row(e) for e in self.entries if e.kind != "dir" or e.mode is not None]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _row(entry: SnapshotEntry) -> list[object]:
    row: list[object] = [entry.path, entry.kind, entry.executable, entry.digest]
    return row if entry.mode is None else [*row, entry.mode]
