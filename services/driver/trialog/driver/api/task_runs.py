"""Tasks of runs that are asked for: found, checked and kept before anything is recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trialog.driver.api import asking, task_sources
from trialog.driver.api.dependencies import ApiDependencies
from trialog.driver.api.problems import ProblemError, invalid
from trialog.driver.api.task_sources import Source
from trialog.driver.forking import Ancestor, Mode, merged
from trialog.driver.task_settings import (
    DECIDING,
    fork_settings,
    in_order_of,
    spec_for_tasks,
)
from trialog.proto.canonical import bytes_digest
from trialog.proto.runspec import RunSpec
from trialog.proto.tasks import manifest
from trialog.proto.tasks.check import Settings, Verdict, verdict_on
from trialog.proto.tasks.defaults import TasksRefusedError, is_of_tasks, preliminary
from trialog.proto.tasks.files import TaskProblem
from trialog.proto.tasks.manifest import Manifest, TaskRef
from trialog.proto.tasks.parts import ref_of
from trialog.proto.tasks.task import Task
from trialog.spine.tasks.packing import pack

# Of a plain request's time: 2,000 tasks took 17 s on two busy cores, a run has 10,000 at most.
PATIENCE = 60
_NAMED = 3


async def resolve_in(deps: ApiDependencies, given: dict[str, Any], title: str) -> dict[str, Any]:
    """Return settings with the tasks that they name found, checked and kept, and the defaults that
    follow. Those that name none come back as they are. Raises a problem that names what is wrong.
    """
    if not is_of_tasks(given):
        return given
    try:
        spec = asking.validated(json.dumps(preliminary(given)), title)
        tasks = await _found(deps, spec, title)
        settings = spec_for_tasks(given, tasks)
    except TasksRefusedError as error:
        raise invalid(error.errors, title) from None
    await deps.blobs.put(manifest.encode(tasks))
    return settings


async def resolve_fork(
    deps: ApiDependencies,
    parent: Ancestor,
    settings: dict[str, Any],
    from_step: int,
    mode: Mode,
    title: str,
) -> dict[str, Any]:
    """Return what a fork changes, with its tasks found, checked and kept, if they are others or
    are to run otherwise. Raises a problem that names what is wrong."""
    inherited = parent.request.spec
    if (inherited.get("tasks") is None) != (settings.get("tasks", inherited.get("tasks")) is None):
        what = "cannot be taken away" if is_of_tasks(inherited) else "cannot be given to a run"
        message = f"{what} by a fork: {parent.run_id} is of another kind; start a run"
        raise invalid([("tasks", message)], title)
    if not is_of_tasks(inherited):
        return settings
    before = await task_sources.kept(deps.blobs, inherited["tasks"]["manifest"])
    try:
        spec = asking.validated(json.dumps(_preliminary_fork(parent, settings, mode)), title)
        tasks = before
        if DECIDING & set(settings):
            tasks = in_order_of(before, await _found(deps, spec, title))
        changes = fork_settings(inherited, settings, from_step, before, tasks)
    except TasksRefusedError as error:
        raise invalid(error.errors, title) from None
    await deps.blobs.put(manifest.encode(tasks))
    return changes


def _preliminary_fork(parent: Ancestor, settings: dict[str, Any], mode: Mode) -> dict[str, Any]:
    inherited = parent.request.spec["tasks"]
    asked = settings.get("tasks", {"manifest": inherited["manifest"]})
    whole = json.loads(merged(parent, settings | {"tasks": None}, mode)) | {"tasks": asked}
    free = {"n_steps", "prompts_per_step", "n_worlds"} - set(settings)
    return preliminary({key: value for key, value in whole.items() if key not in free})


async def _found(deps: ApiDependencies, spec: RunSpec, title: str) -> Manifest:
    """Return the tasks that a run names, kept. Raises a problem where one of them cannot run."""
    asked = spec.tasks
    assert asked is not None
    settings = Settings(spec.provider, spec.network, spec.images, spec.agent)
    try:
        if asked.path is not None:
            source = task_sources.folder(asked.path, deps.task_roots)
            async with deps.reading_tasks:
                refuse(_broken(await verdicts(source, settings)), title)
                return await keep(deps, source)
        tasks = await task_sources.kept(deps.blobs, asked.archive or asked.manifest or "")
        source = task_sources.of_manifest(deps.blobs, tasks)
        async with deps.reading_tasks:
            refuse(_broken(await verdicts(source, settings)), title)
        return tasks
    except TaskProblem as problem:
        raise unreadable(task_sources.named_by(asked), problem, title) from None


async def verdicts(source: Source, settings: Settings) -> list[Verdict]:
    """Return for each task whether it runs. Raises TaskProblem where there is none to look at."""
    return [verdict_on(name, read, settings) async for name, read in source()]


def _broken(found: list[Verdict]) -> dict[int, Verdict]:
    return {place: one for place, one in enumerate(found) if not one.runs}


def refuse(broken: Mapping[int, Verdict], title: str) -> None:
    """Raise a problem where there are tasks that do not run, given by their places. What is wrong
    with many is told once."""
    alike: dict[tuple[str, str], list[int]] = {}
    for place, one in broken.items():
        alike.setdefault((one.reason, one.mend), []).append(place)
    errors = [
        (f"tasks[{places[0]}]", said(replace(broken[places[0]], task=_listed(places, broken))))
        for places in alike.values()
    ]
    if errors:
        raise invalid(errors, title)


def _listed(places: list[int], found: Mapping[int, Verdict]) -> str:
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return ", ".join(found[place].task for place in places[:_NAMED]) + more


def said(verdict: Verdict) -> str:
    """Return why a task does not run, and what mends it, in a line."""
    mend = f"; {verdict.mend}" if verdict.mend else ""
    return f"{verdict.task}: {verdict.reason}{mend}"


def unreadable(field: str, problem: TaskProblem, title: str) -> ProblemError:
    """422: what was to hold tasks holds none that can be read."""
    mend = f"; {problem.mend}" if problem.mend else ""
    return invalid([(field, f"{problem}{mend}")], title)


async def keep(deps: ApiDependencies, source: Source) -> Manifest:
    """Pack each task of a source into a blob and return what names them. Raises TaskProblem."""
    kept: list[TaskRef] = []
    async for _, read in source():
        if isinstance(read, TaskProblem):
            raise read  # it was readable a moment ago: somebody writes there
        data, ref = await asyncio.to_thread(_packed, read)
        await deps.blobs.put(data)
        kept.append(ref)
    return tuple(kept)


def _packed(task: Task) -> tuple[bytes, TaskRef]:
    data = pack(task.files)
    return data, ref_of(task, bytes_digest(data))
