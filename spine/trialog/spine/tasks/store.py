"""Tasks unpacked on a worker's host: one folder a digest, whole or not there at all."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import re
import secrets
import shutil
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trialog.proto.tasks.config import Step, TaskConfig
from trialog.proto.tasks.files import Files, TaskProblem
from trialog.proto.tasks.layout import Layout
from trialog.proto.tasks.legacy import CONFIG
from trialog.proto.tasks.parse import parse
from trialog.proto.tasks.task import instruction, read_task
from trialog.spine.tasks.packing import unpack

Fetch = Callable[[str], Awaitable[bytes]]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEPT = 256
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class OpenTask:
    """A task on this host: read-only in use. ``layout`` says where it has what."""

    folder: Path
    config: TaskConfig
    layout: Layout

    def instruction(self, step: Step | None = None) -> str:
        """Return the text that an agent is given."""
        path = self.layout.instruction(step)
        return instruction(path, (self.folder / path).read_bytes())

    def tests(self, step: Step | None = None) -> tuple[Path, ...]:
        """Return the folders that go to /tests, in their order: a later one overwrites."""
        return tuple(self.folder / folder for folder in self.layout.tests(step))

    def solution(self, step: Step | None = None) -> Path | None:
        """Return the folder that goes to /solution, None where there is none."""
        folder = self.layout.solution(step)
        return None if folder is None else self.folder / folder

    def workdir(self, step: Step) -> Path | None:
        """Return the folder of what is put into the working directory before a step."""
        folder = self.layout.workdir(step)
        return None if folder is None else self.folder / folder


class TaskStore:
    """A folder of unpacked tasks that processes of a host share."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: OrderedDict[str, OpenTask] = OrderedDict()

    async def open(self, digest: str, fetch: Fetch) -> OpenTask:
        """Return the task of a packed folder's digest, unpacked at the first call.

        ``fetch`` returns the bytes of a digest, as BlobStore.get does; what it raises goes on.
        Raises TaskProblem where they are no packed task.
        """
        if not _DIGEST.fullmatch(digest):
            raise TaskProblem("", f"{digest!r} is no digest of a task")
        known = self._open.get(digest)
        if known is None or not known.folder.is_dir():
            data = b"" if self._path(digest).is_dir() else await fetch(digest)
            known = await asyncio.to_thread(self._opened, digest, data)
            self._open[digest] = known
        self._open.move_to_end(digest)
        while len(self._open) > _KEPT:
            self._open.popitem(last=False)
        return known

    def _path(self, digest: str) -> Path:
        return self._root / digest

    def _opened(self, digest: str, data: bytes) -> OpenTask:
        folder = self._path(digest)
        if not folder.is_dir():
            if hashlib.sha256(data).hexdigest() != digest:
                raise TaskProblem("", f"the bytes are not those of {digest}")
            self._unpack(folder, read_task(digest, unpack(data)).files)
        config, _ = parse((folder / CONFIG).read_bytes())
        return OpenTask(folder, config, Layout(config, frozenset(_paths(folder))))

    def _unpack(self, folder: Path, files: Files) -> None:
        """Write it aside, then rename: of several processes one wins, and a crash leaves no half
        of a task under the name."""
        self._root.mkdir(parents=True, exist_ok=True)
        aside = self._root / f".new-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            aside.mkdir()
            write_files(aside, files)
            _sync_filesystem(aside)
            try:
                aside.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def write_files(folder: Path, files: Files) -> None:
    """Write entries below an empty folder, links last: nothing can be written through one."""
    for path, entry in sorted(files.items(), key=lambda item: (item[1].kind == "symlink", item[0])):
        place = folder / path
        if entry.kind == "dir":
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "symlink":
            place.symlink_to(entry.target)
            continue
        with place.open("xb") as file:
            file.write(entry.data)
            os.fchmod(file.fileno(), 0o755 if entry.executable else 0o644)
        # What is copied into a sandbox keeps its times, and nothing may depend on them.
        os.utime(place, (0, 0))


def _paths(folder: Path) -> Iterator[str]:
    for above, folders, names in os.walk(folder):
        home = Path(above).relative_to(folder)
        links = [name for name in folders if (Path(above) / name).is_symlink()]
        yield from (str(home / name) for name in (*names, *links))


def _sync_filesystem(folder: Path) -> None:
    """One syncfs for the whole task: an fsync a file would take seconds at 20,000."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _libc.syncfs(opened) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(opened)
