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
from trialog.proto.tasks.legacy import CONFIG

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What a folder without a task.toml would be a task by.
_SIGNS = frozenset({"instruction.md", "environment", "tests", "steps"})
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def task_folders(path: Path) -> list[tuple[str, Path]]:
    """Return the tasks of a folder, by name in their order: itself, or the folders in it.

    Hidden ones are passed over. Raises TaskProblem where there is no task, and for a folder that
    looks like one but has no task.toml.
    """
    names = _names(path)
    if CONFIG in names:
        return [(check_path(path.resolve().name or "task"), path)]
    if len(_SIGNS & names) > 1:
        raise TaskProblem(CONFIG, "is missing", "a task is a folder with a task.toml in it")
    found: list[tuple[str, Path]] = []
    for name in sorted(names):
        if name.startswith(".") or not _is_folder(path / name, name):
            continue
        below = _names(path / name)
        if CONFIG in below:
            found.append((check_path(name), path / name))
        elif _SIGNS & below:
            mend = "a task is a folder with a task.toml in it"
            raise TaskProblem(f"{check_path(name)}/{CONFIG}", "is missing", mend)
    if not found:
        what = "holds no task: neither a task.toml nor a folder with one in it"
        raise TaskProblem(_shown(path), what)
    if len(found) > limits.MAX_TASKS:
        raise TaskProblem(_shown(path), f"holds {len(found)} tasks; at most {limits.MAX_TASKS}")
    return found


def _names(path: Path) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(path)}
    except OSError as error:
        raise TaskProblem(_shown(path), f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise TaskProblem(_shown(path), "is no path") from None


def _is_folder(path: Path, name: str) -> bool:
    """Whether it is a folder; a link to one is refused, it might lead anywhere."""
    if path.is_symlink() and path.is_dir():
        what = "is a symlink, where folders of tasks are expected"
        raise TaskProblem(name, what, "copy the folder, or give its own path")
    return path.is_dir()


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
        raise TaskProblem(_shown(path), f"cannot be read: {error.strerror}") from None
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
