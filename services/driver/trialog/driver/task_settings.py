"""The settings of a run of tasks, from what was given and the tasks that were found. Pure.

A batch of tasks is a step. What is not given follows from the tasks; what contradicts them is
refused. docs/tasks.md lists the defaults.
"""

from __future__ import annotations

from trialog.proto.canonical import bytes_digest
from trialog.proto.runspec import MAX_TRIALS_PER_STEP
from trialog.proto.tasks import manifest
from trialog.proto.tasks.defaults import Given, TasksRefusedError, with_defaults
from trialog.proto.tasks.manifest import Manifest

# What decides whether a task can run: a change of it is checked against every task.
DECIDING = frozenset({"tasks", "provider", "network", "images", "agent"})


def spec_for_tasks(given: Given, tasks: Manifest) -> Given:
    """Return a run's settings with its tasks and the defaults that follow from them.

    ``given`` is valid but for what depends on the tasks. Raises TasksRefusedError.
    """
    whole = with_defaults(given)
    count, samples = len(tasks), int(whole["n_samples"])
    prompts = int(given.get("prompts_per_step", min(count, MAX_TRIALS_PER_STEP // samples)))
    steps = int(given.get("n_steps", batches(count, prompts)))
    _check_counts(given, count, prompts, steps)
    return whole | {
        "tasks": recorded(given["tasks"], tasks),
        "n_worlds": count,
        "prompts_per_step": prompts,
        "n_steps": steps,
    }


def batches(count: int, prompts: int) -> int:
    """Return how many steps it takes to play each task."""
    return -(-count // prompts)


def _check_counts(given: Given, count: int, prompts: int, steps: int) -> None:
    errors: list[tuple[str, str]] = []
    worlds, said = given.get("n_worlds", count), given["tasks"].get("count", 0)
    if worlds != count:
        errors.append(("n_worlds", f"is {worlds}, and there are {count} tasks: leave it out"))
    if said not in (0, count):
        errors.append(("tasks.count", f"is {said}, and there are {count} tasks: leave it out"))
    if steps > (most := batches(count, prompts)):
        message = (
            f"is {steps}, but {_counted(count, 'task')} at {prompts} a step make only "
            f"{_counted(most, 'step')}: give at most {most}, or leave it out"
        )
        errors.append(("n_steps", message))
    if errors:
        raise TasksRefusedError(errors)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def recorded(asked: Given, tasks: Manifest) -> Given:
    """Return which tasks a run is of, as it goes on the log."""
    named = {name: asked.get(name) for name in ("path", "archive")}
    return named | {"manifest": bytes_digest(manifest.encode(tasks)), "count": len(tasks)}


def in_order_of(parent: Manifest, tasks: Manifest) -> Manifest:
    """Return a fork's tasks in the order of its parent's, by name; those that are new follow.

    A task keeps its place, and with it the ids of its trials, as long as none before it is gone.
    """
    places = {task.name: place for place, task in enumerate(parent)}
    return tuple(sorted(tasks, key=lambda task: places.get(task.name, len(places))))


def fork_settings(
    parent: Given, settings: Given, from_step: int, before: Manifest, tasks: Manifest
) -> Given:
    """Return what a fork of a run of tasks changes, with what follows from it.

    ``parent`` are the settings of its parent, ``before`` and ``tasks`` the tasks of the two. Raises
    TasksRefusedError.
    """
    count, kept = len(tasks), int(parent["prompts_per_step"])
    prompts = int(settings.get("prompts_per_step", kept))
    played = batches(count, prompts)
    changes = dict(settings)
    asked = settings.get("tasks", {})
    if "tasks" in settings:
        changes |= {"tasks": recorded(asked, tasks), "n_worlds": count}
    if {"tasks", "prompts_per_step"} & set(settings):
        changes["n_steps"] = settings.get("n_steps", played)
    given = settings | {"tasks": asked}
    _check_counts(given, count, prompts, int(changes.get("n_steps", parent["n_steps"])))
    if from_step:
        _check_kept(from_step, kept, prompts, before, tasks)
    return changes


def _check_kept(from_step: int, kept: int, prompts: int, before: Manifest, tasks: Manifest) -> None:
    """Refuse a fork whose kept steps would be of other tasks than they were."""
    if prompts != kept:
        message = f"stays {kept} where steps are kept: they are of so many tasks each"
        raise TasksRefusedError([("prompts_per_step", message)])
    n_kept = from_step * kept
    names = [[task.name for task in some[:n_kept]] for some in (before, tasks)]
    if names[0] != names[1]:
        gone = next(name for name in names[0] if name not in names[1])
        message = f"has no {gone}, of which a step below {from_step} is, which is to be kept"
        raise TasksRefusedError([("tasks", message)])
