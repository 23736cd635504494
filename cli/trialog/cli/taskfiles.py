"""Tasks of this machine, for a server that may be on another: read, packed and uploaded."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trialog.cli import output
from trialog.cli.exits import BadInput

if TYPE_CHECKING:
    from trialog.client import TrialogClient
    from trialog.proto.tasks.files import Files
    from trialog.spine.tasks.folders import Read

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
    from trialog.spine.tasks.packing import pack_many

    with tempfile.NamedTemporaryFile(prefix="trialog-tasks-", suffix=".tar.gz") as file:
        pack_many(_readable(tasks["path"]), file)
        file.flush()
        kept = client.upload_tasks(file.name)
    for one in kept["tasks"]:
        for warning in one["warnings"]:
            output.note(f"{one['task']}: {warning}")
    others = {key: value for key, value in tasks.items() if key != "path"}
    return body | {"tasks": others | {"archive": kept["archive"]}}


def _readable(path: str) -> Iterator[tuple[str, Files]]:
    from trialog.proto.tasks.files import TaskProblem

    for name, read in read_tasks(path):
        if isinstance(read, TaskProblem):
            raise BadInput(f"tasks.path: {name}: {_said(read)}")
        yield name, read.files


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
