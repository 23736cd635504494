"""Tasks of this machine, for a server that may be on another: read, packed and uploaded."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trialog.cli import output
from trialog.cli.exits import BadInput

if TYPE_CHECKING:
    from trialog.client import TrialogClient
    from trialog.proto.tasks.files import Files
    from trialog.spine.tasks.folders import Read

_NAMED = 3
_NO_READER = (
    "reading tasks needs trialog-spine, which `pip install ./spine` adds; or upload a tar of the "
    "folder (PUT /task-archives) and give tasks.archive"
)


def upload_tasks(client: TrialogClient, body: dict[str, Any]) -> dict[str, Any]:
    """Return a request's body with the folder of tasks that it names uploaded, named by digest.

    Raises BadInput for one that cannot be read, before anything is sent.
    """
    tasks = body.get("tasks")
    if not isinstance(tasks, dict) or tasks.get("path") is None:
        return body
    try:
        from trialog.spine.tasks.packing import pack_many
    except ImportError as error:
        raise BadInput(_NO_READER) from error

    told: list[tuple[str, Sequence[str]]] = []
    with tempfile.NamedTemporaryFile(prefix="trialog-tasks-", suffix=".tar.gz") as file:
        pack_many(_readable(tasks["path"], told), file)
        file.flush()
        tell(told)
        kept = client.upload_tasks(file.name)
    others = {key: value for key, value in tasks.items() if key != "path"}
    return body | {"tasks": others | {"archive": kept["archive"]}}


def _readable(path: str, told: list[tuple[str, Sequence[str]]]) -> Iterator[tuple[str, Files]]:
    """Yield the files of each task, and note its warnings: what cannot run, the server says."""
    from trialog.proto.tasks.check import Settings, verdict_on
    from trialog.proto.tasks.files import TaskProblem

    # As of a run that says all that it can say: what is left is the task's own.
    settled = Settings(images={}, agent="nop")
    broken: list[tuple[str, Sequence[str]]] = []
    for name, read in read_tasks(path):
        if isinstance(read, TaskProblem):
            broken.append((name, [_said(read)]))
        elif not broken:
            told.append((name, verdict_on(name, read, settled).warnings))
            yield name, read.files
    if broken:
        lines = [f"tasks.path: {line}" for line in _once(broken)]
        if len(broken) > 1:
            more = f"{len(broken)} tasks cannot be read; see each with: trialog tasks check {path}"
            lines = [*lines[:_NAMED], f"tasks.path: {more}"]
        raise BadInput("\n".join(lines))


def tell(told: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Tell each warning once, with the tasks that it is of: many share one."""
    for line in _once(told):
        output.note(line)


def _once(told: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """Return a line for each text, with the tasks that it is of before it."""
    names: dict[str, list[str]] = {}
    for name, texts in told:
        for text in texts:
            names.setdefault(text, []).append(name)
    return [f"{listed(tasks)}: {text}" for text, tasks in names.items()]


def listed(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def read_tasks(path: str) -> Iterator[Read]:
    """Yield each task of a folder with its name, or what is wrong with it. Raises BadInput."""
    try:
        from trialog.spine.tasks.folders import tasks_of
    except ImportError as error:
        raise BadInput(_NO_READER) from error
    from trialog.proto.tasks.files import TaskProblem

    try:
        yield from tasks_of(Path(path))
    except TaskProblem as problem:
        raise BadInput(_said(problem)) from None


def _said(problem: Any) -> str:
    return f"{problem}; {problem.mend}" if problem.mend else str(problem)
