"""Where a run's tasks come from: a folder of this host, an upload, or the tasks of another run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from trialog.proto.runspec import Tasks
from trialog.proto.tasks import manifest
from trialog.proto.tasks.files import TaskProblem
from trialog.proto.tasks.manifest import Manifest
from trialog.proto.tasks.task import Task, read_task
from trialog.spine.blobs import BlobMissingError, BlobStore
from trialog.spine.tasks import folders
from trialog.spine.tasks.folders import Read
from trialog.spine.tasks.packing import unpack

Source = Callable[[], AsyncIterator[Read]]
"""Yields each task with its name, or what is wrong with it; can be asked more than once."""

_MEND = "upload the folder (PUT /task-archives) and give tasks.archive"


def from_thread(reads: Callable[[], Iterator[Read]]) -> Source:
    """Return a source that reads in a thread, a task at a time."""

    async def source() -> AsyncIterator[Read]:
        each = reads()
        while (read := await asyncio.to_thread(next, each, None)) is not None:
            yield read

    return source


def folder(path: str, roots: Sequence[Path]) -> Source:
    """Return the source of a folder's tasks. Raises TaskProblem for one outside of the roots."""
    if not roots:
        raise TaskProblem("", "this driver reads no folders: TRIALOG_TASK_ROOTS names none", _MEND)
    given = Path(path)
    if not given.is_absolute():
        raise TaskProblem("", f"{path} must be absolute: it is of the driver's host", _MEND)
    try:
        found = given.resolve()
    except (OSError, ValueError, RuntimeError):
        raise TaskProblem("", f"{path!r} is no path of a folder") from None
    if not any(found.is_relative_to(root.resolve()) for root in roots):
        listed = ", ".join(map(str, roots))
        raise TaskProblem("", f"{path} is not below {listed} (TRIALOG_TASK_ROOTS)", _MEND)
    return from_thread(lambda: folders.tasks_of(found))


async def kept(blobs: BlobStore, digest: str) -> Manifest:
    """Return the tasks of a manifest. Raises TaskProblem where there is none of that digest."""
    try:
        tasks = manifest.decode(await blobs.get(digest))
    except (BlobMissingError, msgspec.MsgspecError, UnicodeDecodeError):
        what = f"there are no tasks under {digest}"
        raise TaskProblem("", what, "upload them: PUT /task-archives answers its digest") from None
    if not tasks:
        raise TaskProblem("", f"{digest} holds no task")
    return tasks


def of_manifest(blobs: BlobStore, tasks: Manifest) -> Source:
    """Return the source of tasks that are kept already."""

    async def source() -> AsyncIterator[Read]:
        for task in tasks:
            data = await blobs.get(task.blob)
            yield task.name, await asyncio.to_thread(_unpacked, task.name, data)

    return source


def _unpacked(name: str, data: bytes) -> Task | TaskProblem:
    try:
        return read_task(name, unpack(data))
    except TaskProblem as problem:
        return problem


def named_by(tasks: Tasks) -> str:
    """Return the field by which tasks are named, for messages."""
    return "tasks.path" if tasks.path is not None else "tasks.archive"
