"""Reads a task's folder, or a folder of tasks, without trusting what is in it.

No link is followed: everything is opened by its name in an open folder, as what it was seen to be.
A file is looked at before it is read, so one beyond the limits is never read, nor a FIFO opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from trialog.proto.tasks import files as limits
from trialog.proto.tasks.files import Entry, TaskProblem, check_path
from trialog.proto.tasks.task import Task, looks_like_task, no_task, read_task

Read = tuple[str, Task | TaskProblem]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def task_folders(path: Path) -> list[tuple[str, Path]]:
    """Return the tasks of a folder, by name in their order: itself, or the folders in it.

    Hidden ones are passed over; what looks like a task but has no task.toml is one that cannot be
    read. Raises TaskProblem where there is no task at all.
    """
    try:
        path = path.resolve(strict=True)
        names = {entry.name for entry in os.scandir(path)}
    except OSError as error:
        raise TaskProblem(_shown(path), f"cannot be read: {error.strerror}") from None
    except (ValueError, RuntimeError):  # a NUL in it; a circle of links
        raise TaskProblem(_shown(path), "is no path of a folder") from None
    if looks_like_task(names):
        return [(check_path(path.name or "task"), path)]
    found = [
        (check_path(name), path / name)
        for name in sorted(names)
        if not name.startswith(".") and looks_like_task(_names(path / name))
    ]
    if not found:
        raise no_task(_shown(path))
    if len(found) > limits.MAX_TASKS:
        raise TaskProblem(_shown(path), f"holds {len(found)} tasks; at most {limits.MAX_TASKS}")
    return found


def _names(path: Path) -> set[str]:
    """Return what is in a folder; nothing in what is none, or cannot be read."""
    try:
        return {entry.name for entry in os.scandir(path)}
    except OSError:
        return set()


def tasks_of(path: Path) -> Iterator[Read]:
    """Yield each task of a folder with its name, or what is wrong with it. Raises TaskProblem."""
    for name, folder in task_folders(path):
        yield name, _read(name, folder)


def _read(name: str, folder: Path) -> Task | TaskProblem:
    try:
        return read_task(name, read_folder(folder))
    except TaskProblem as problem:
        return problem


def _shown(path: Path) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")


def read_folder(path: Path) -> dict[str, Entry]:
    """Return what is below a task's folder, hidden entries at its top left out.

    Raises TaskProblem for what can be no part of a task, naming it.
    """
    found: dict[str, Entry] = {}
    try:
        top = os.open(path, _FOLDER)
    except OSError as error:
        if path.is_symlink():
            what = "is a symlink, where a folder is expected"
            raise TaskProblem("", what, "copy the folder, or give its own path") from None
        raise TaskProblem("", f"the folder cannot be read: {error.strerror}") from None
    room = limits.MAX_TASK_BYTES
    for name, entry in _walk(top, ""):
        if len(found) >= limits.MAX_ENTRIES:
            raise limits.too_many()
        room -= len(entry.data)
        if room < 0:
            raise limits.too_much()
        found[name] = entry
    return found


def _walk(folder: int, above: str) -> Iterator[tuple[str, Entry]]:
    """Yield what is in an open folder and below it; closes it."""
    try:
        for name in sorted(os.listdir(folder)):
            if not above and name.startswith("."):
                continue
            path = check_path(f"{above}{name}")
            try:
                entry, below = _entry(folder, name, path)
                yield path, entry
            except OSError as error:
                raise TaskProblem(path, f"cannot be read: {error.strerror}") from None
            if below is not None:
                yield from _walk(below, f"{path}/")
    finally:
        os.close(folder)


def _entry(folder: int, name: str, path: str) -> tuple[Entry, int | None]:
    """Return one entry, and the open folder that it is. Raises OSError, TaskProblem."""
    about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(about.st_mode):
        return Entry("dir"), os.open(name, _FOLDER, dir_fd=folder)
    if stat.S_ISLNK(about.st_mode):
        return Entry("symlink", target=_target(os.readlink(name, dir_fd=folder), path)), None
    if stat.S_ISREG(about.st_mode):
        return _file(folder, name, path, about.st_size), None
    kind = _KINDS.get(stat.S_IFMT(about.st_mode), "no plain file")
    raise TaskProblem(path, f"is {kind}", "only files, folders and links can be in a task")


def _target(target: str, path: str) -> str:
    try:
        target.encode()
    except UnicodeEncodeError:
        raise TaskProblem(path, "is a link to a name that is not UTF-8", "rename it") from None
    return target


def _file(folder: int, name: str, path: str, n_bytes: int) -> Entry:
    if n_bytes > limits.MAX_FILE_BYTES:
        raise limits.too_large(path, n_bytes)
    with os.fdopen(os.open(name, _FILE, dir_fd=folder), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise TaskProblem(path, "changed while it was read")
        data = file.read(limits.MAX_FILE_BYTES + 1)
    if len(data) > limits.MAX_FILE_BYTES:
        raise limits.too_large(path, len(data))
    return Entry("file", data, executable=bool(about.st_mode & stat.S_IXUSR))
