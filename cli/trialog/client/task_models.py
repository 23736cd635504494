"""Shapes of the driver's answers about uploaded tasks, as typed dictionaries: the JSON itself."""

from __future__ import annotations

from typing import TypedDict


class TaskVerdict(TypedDict):
    """Whether a task runs; if not, why, and what to do about it."""

    task: str
    runs: bool
    reason: str
    mend: str
    warnings: list[str]


class TaskArchive(TypedDict):
    """Tasks that are kept: give ``archive`` as ``tasks.archive`` of a run."""

    archive: str
    tasks: list[TaskVerdict]
