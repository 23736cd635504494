"""A sandbox's folder on the host: who owns it, and what a later worker must know.

run/<sandbox id>/
  lock      held (flock) by the worker that owns the sandbox, so a dead worker's shows
  record    JSON: what it was started from, its container
  socket    where PID 1 listens; nobody inside can reach it
  inside/   what the container sees, read-only: PID 1's binary and, until it began, the handover
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from trialog.sandbox.docker.container import INIT
from trialog.sandbox.docker.mounted import Begun
from trialog.sandbox.errors import SandboxBusyError, SandboxGoneError
from trialog.sandbox.images import Image, User
from trialog.sandbox.owning import own
from trialog.sandbox.provider import Limits
from trialog.sandbox.trees import remove_tree

PASSING = ".new-"


@dataclass(frozen=True, slots=True)
class Record:
    """What a later worker must know. ``container`` is the daemon's id, ``upper`` its overlay's
    upper folder where this process may read it (else empty), ``mounted`` how the daemon's own files
    were before any command ran. It is written when a command may run."""

    image: Image
    limits: Limits
    container: str = ""
    upper: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"
    user: User = 0
    mounted: Begun = field(default_factory=lambda: Begun({}))

    def to_json(self) -> str:
        """Return the text kept in the folder."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read ``to_json()`` back. Raises ValueError, KeyError or TypeError on anything else."""
        raw = json.loads(text)
        image, limits = Image(**raw.pop("image")), Limits(**raw.pop("limits"))
        return cls(image=image, limits=limits, mounted=Begun(**raw.pop("mounted")), **raw)


class Folder:
    """An open, locked folder. Its sockets are addressed through its descriptor: a socket's path may
    have 107 bytes only."""

    def __init__(self, path: Path, fd: int, lock: int) -> None:
        self.path = path
        self._fd = fd
        self._lock = lock

    @classmethod
    def new(cls, parent: Path) -> Self:
        """Make a folder under a passing name; ``settle`` gives it its own."""
        path = parent / f"{PASSING}{secrets.token_hex(8)}"
        path.mkdir(mode=0o700, parents=True)
        return cls(path, *own(path, create=True))

    @classmethod
    def find(cls, path: Path) -> Self:
        """Open a sandbox's folder and own it.

        Raises SandboxGoneError when there is none, SandboxBusyError when another lives in it.
        """
        try:
            return cls(path, *own(path, create=False))
        except FileNotFoundError:
            raise SandboxGoneError(f"there is no sandbox {path.name}") from None

    def settle(self, path: Path) -> None:
        """Move to the final name. Raises SandboxBusyError when a sandbox is there already."""
        try:
            self.path.rename(path)
        except OSError:
            if path.is_dir():
                raise SandboxBusyError(f"sandbox {path.name} was made by another") from None
            raise
        self.path = path

    def keep(self, record: Record) -> None:
        """Write the record, whole or not at all."""
        aside = self.path / "record.new"
        aside.write_text(record.to_json())
        aside.replace(self.path / "record")

    def record(self) -> Record | None:
        """Return the record; None when its writer died before it was written."""
        try:
            return Record.from_json((self.path / "record").read_text())
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def address(self) -> str:
        """Where PID 1 is reached while this object is open."""
        return f"/proc/self/fd/{self._fd}/socket"

    @property
    def inside(self) -> Path:
        """The folder that the container sees."""
        return self.path / "inside"

    def furnish(self, init: Path) -> None:
        """Put PID 1's binary where the container sees it."""
        self.inside.mkdir(mode=0o755, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (self.inside / INIT).unlink()
        try:
            os.link(init, self.inside / INIT)
        except OSError:  # another filesystem, or one without hard links
            shutil.copy(init, self.inside / INIT)

    def remove(self) -> None:
        """Remove the folder. The container must be gone."""
        remove_tree(self.path)
        self.close()

    def close(self) -> None:
        """Give up ownership and leave the sandbox as it is."""
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1
