"""A task's folder as it was read: files, folders and links by path. Pure.

Paths are relative to the task's folder, in UTF-8, with ``/`` between names. What reads a folder or
an archive makes these entries (``trialog.spine.tasks``); the limits that it keeps are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MAX_FILE_BYTES = 64 << 20
MAX_TASK_BYTES = 128 << 20
MAX_ENTRIES = 20_000
MAX_DEPTH = 32
MAX_PATH_BYTES = 1_000
MAX_NAME_BYTES = 255
MAX_TASKS = 10_000

_MAX_HOPS = 40  # as the kernel has it


class TaskProblem(Exception):
    """A task that cannot be read. ``file`` is what is wrong with it, below the task's folder;
    ``mend`` says what to do."""

    def __init__(self, file: str, what: str, mend: str = "") -> None:
        super().__init__(f"{file}: {what}" if file else what)
        self.file = file
        self.what = what
        self.mend = mend


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, folder or symlink. A file's mode is 0o644 or 0o755, of a link only its target
    counts."""

    kind: Literal["file", "dir", "symlink"]
    data: bytes = b""
    executable: bool = False
    target: str = ""


Files = Mapping[str, Entry]


def check_path(path: str) -> str:
    """Return a path that can be one below a task's folder. Raises TaskProblem."""
    parts = path.split("/")
    shown = path if len(path) <= 120 else f"{path[:117]}..."
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        # What was no UTF-8 on the disk came as half surrogates: shown as the bytes that they were.
        shown = shown.encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise TaskProblem(shown, "its name is not UTF-8", "rename it") from None
    if path.startswith("/") or ".." in parts or "" in parts or "." in parts:
        raise TaskProblem(shown, "its path leads out of the task's folder")
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        raise TaskProblem(ascii(shown), "its name holds a control character", "rename it")
    longest = max(len(part.encode()) for part in parts)
    if len(encoded) > MAX_PATH_BYTES or longest > MAX_NAME_BYTES:
        raise TaskProblem(shown, "its path is too long", f"at most {MAX_PATH_BYTES} bytes")
    if len(parts) > MAX_DEPTH:
        raise TaskProblem(shown, f"lies more than {MAX_DEPTH} folders deep")
    return path


def too_large(path: str, n_bytes: int) -> TaskProblem:
    """Return the problem of a file above the limit: it is not read."""
    limit = MAX_FILE_BYTES >> 20
    return TaskProblem(
        path,
        f"has {n_bytes} bytes; the limit of a file is {limit} MiB",
        "let the Dockerfile fetch or make it, or put it into the image",
    )


def too_much() -> TaskProblem:
    """Return the problem of a task whose files are above the limit together."""
    what = f"the files of the task have more than {MAX_TASK_BYTES >> 20} MiB together"
    return TaskProblem("", what, "let the Dockerfile fetch or make large data")


def too_many() -> TaskProblem:
    """Return the problem of a task with too many files."""
    what = f"the task has more than {MAX_ENTRIES} files and folders"
    return TaskProblem("", what, "pack many small files into an archive for ADD")


def part_of(path: str) -> str:
    """Return which part of a task a path belongs to: a folder that is handed over as a whole
    (``environment``, ``tests``, ``solution``, ``steps/NAME/tests`` ...), else the path itself."""
    parts = path.split("/")
    return "/".join(parts[: 3 if parts[0] == "steps" else 1])


def settled(files: Files) -> dict[str, Entry]:
    """Return the entries with every link checked, in order of their paths; folders that are there
    by what is in them, as in an archive, are entries too.

    A link within its part stays a link. One to a file of another part becomes that file, since
    parts are handed over apart and the link would lead nowhere. Raises TaskProblem for a link that
    leads out of the folder, nowhere, in a circle, or to another part's folder.
    """
    whole = dict(files)
    for path in files:
        above = path.rpartition("/")[0]
        while above:
            if whole.setdefault(above, Entry("dir")).kind != "dir":
                raise TaskProblem(path, f"lies below {above}, which is no folder")
            above = above.rpartition("/")[0]
    return {path: _settled(whole, path) for path in sorted(whole)}


def _settled(files: Files, path: str) -> Entry:
    entry = files[path]
    if entry.kind != "symlink":
        return entry
    part = part_of(path)
    if part != path and _stays(files, path, part.count("/") + 1):
        return entry
    found = resolve(files, path)
    there = files.get(found) if found else Entry("dir")
    if there is None:
        raise TaskProblem(path, f"the link to {entry.target} leads nowhere", "remove it")
    if there.kind == "dir":
        named = f"the folder {found}" if found else "the task's own folder"
        what = f"the link leads to {named}, which is not handed over together with it"
        raise TaskProblem(path, what, "copy the folder")
    return there


def _stays(files: Files, path: str, floor: int) -> bool:
    try:
        resolve(files, path, floor)
    except TaskProblem:
        return False  # out of its part: then it is looked at in the whole folder
    return True


def resolve(files: Files, path: str, floor: int = 0) -> str:
    """Return where a path leads once all links are followed; nothing need be there.

    ``floor`` is how many of its first names no link may leave (0: the task's folder itself).
    Raises TaskProblem where one does, or never ends.
    """
    todo, done, hops = path.split("/")[::-1], list[str](), 0
    while todo:
        name = todo.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if len(done) <= floor:
                raise _leads_out(path, files)
            done.pop()
            continue
        done.append(name)
        entry = files.get("/".join(done))
        if entry is None or entry.kind != "symlink":
            continue
        hops += 1
        if hops > _MAX_HOPS:
            raise TaskProblem(path, "the link leads in a circle", "remove it")
        if not entry.target or entry.target.startswith("/"):
            raise _leads_out(path, files)
        done.pop()
        todo.extend(entry.target.split("/")[::-1])
    return "/".join(done)


def _leads_out(path: str, files: Files) -> TaskProblem:
    entry = files.get(path)
    target = f" to {entry.target}" if entry is not None else ""
    return TaskProblem(
        path, f"the link{target} leads out of the task's folder", "copy what it leads to"
    )
