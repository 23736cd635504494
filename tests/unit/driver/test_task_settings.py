"""Settings of runs of tasks and of their forks: what follows from the tasks, what contradicts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.task_folders import ref
from trialog.driver.task_settings import fork_settings, in_order_of, spec_for_tasks
from trialog.proto.canonical import bytes_digest
from trialog.proto.runspec import MAX_TRIALS_PER_STEP, RunSpec
from trialog.proto.tasks import manifest
from trialog.proto.tasks.defaults import TasksRefusedError, preliminary
from trialog.proto.tasks.manifest import Manifest

PATH: dict[str, Any] = {"tasks": {"path": "/srv/tasks"}, "agent": "oracle"}


def tasks(*names: str) -> Manifest:
    return tuple(ref(name=name) for name in names)


def many(count: int) -> Manifest:
    one = ref()
    return tuple(type(one)(f"t{n}", *([one.blob] * 5)) for n in range(count))


def spec(given: dict[str, Any], found: Manifest) -> RunSpec:
    return RunSpec.model_validate_json(json.dumps(spec_for_tasks(given, found)))


def refusals(given: dict[str, Any], found: Manifest) -> dict[str, str]:
    with pytest.raises(TasksRefusedError) as caught:
        spec_for_tasks(given, found)
    return dict(caught.value.errors)


def test_what_is_not_given_follows_from_the_tasks() -> None:
    found = tasks("a", "b", "c")
    run = spec(PATH, found)
    assert (run.learner, run.rubric, run.n_samples) == ("none", "task", 1)
    assert (run.n_worlds, run.prompts_per_step, run.n_steps) == (3, 3, 1)
    assert (run.timeouts.trial_s, run.timeouts.step_s, run.timeouts.judge_s) == (86400, 2592000, 60)
    assert run.tasks is not None
    assert run.tasks.manifest == bytes_digest(manifest.encode(found))
    assert (run.tasks.path, run.tasks.archive, run.tasks.count) == ("/srv/tasks", None, 3)


@pytest.mark.parametrize(
    ("given", "count", "shape"),
    [
        ({"prompts_per_step": 2}, 5, (2, 3, 1)),
        ({"prompts_per_step": 2, "n_steps": 1}, 5, (2, 1, 1)),
        ({"prompts_per_step": 8}, 5, (8, 1, 1)),
        ({"n_samples": 4}, 5, (5, 1, 4)),
        ({"n_samples": 7}, 3000, (MAX_TRIALS_PER_STEP // 7, 2, 7)),
        ({}, 10_000, (10_000, 1, 1)),
        ({"n_worlds": 5}, 5, (5, 1, 1)),
    ],
)
def test_batches(given: dict[str, Any], count: int, shape: tuple[int, int, int]) -> None:
    run = spec(PATH | given, many(count))
    assert (run.prompts_per_step, run.n_steps, run.n_samples) == shape


def test_what_is_given_stands() -> None:
    run = spec(PATH | {"rubric": "v1", "timeouts": {"trial_s": 9}}, tasks("a"))
    assert (run.rubric, run.timeouts.trial_s, run.timeouts.step_s) == ("v1", 9, 2592000)


def test_what_contradicts_the_tasks_is_refused_by_name() -> None:
    found = tasks("a", "b")
    assert "are 2 tasks" in refusals(PATH | {"n_worlds": 3}, found)["n_worlds"]
    counted = PATH | {"tasks": {"path": "/t", "count": 3}}
    assert "are 2 tasks" in refusals(counted, found)["tasks.count"]
    assert refusals(PATH | {"n_steps": 2}, found)["n_steps"] == (
        f"is 2, but {len(found)} tasks at {len(found)} a step make only 1 step: "
        "give at most 1, or leave it out"
    )
    assert (
        "make only 2 steps"
        in refusals(PATH | {"n_steps": 3, "prompts_per_step": 1}, found)["n_steps"]
    )


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"tasks": {"path": "/t"}}, "agent"),
        ({"tasks": {"path": "/t", "archive": "a" * 64}, "agent": "nop"}, "tasks.archive"),
        ({"tasks": {"path": "/t", "manifest": "a" * 64}, "agent": "nop"}, "tasks.manifest"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_read(
    given: dict[str, Any], field: str
) -> None:
    with pytest.raises(TasksRefusedError) as caught:
        preliminary(given)
    assert [name for name, _ in caught.value.errors] == [field]


@pytest.mark.parametrize(
    "given",
    [
        PATH,
        PATH | {"n_samples": 3, "faults": {"hang": ["s7-p9-n2"]}},
        PATH | {"n_samples": MAX_TRIALS_PER_STEP},
        PATH | {"faults": {"crash_driver_after_step": 50}},
    ],
)
def test_preliminary_settings_are_valid_however_many_tasks(given: dict[str, Any]) -> None:
    RunSpec.model_validate_json(json.dumps(preliminary(given)))


@pytest.mark.parametrize(
    "wrong", [{"tasks": 3}, {"n_samples": "x"}, {"timeouts": 3}, {"n_samples": 0}]
)
def test_preliminary_leaves_types_to_their_validation(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        RunSpec.model_validate_json(json.dumps(preliminary(PATH | wrong)))


PARENT = spec_for_tasks(PATH, tasks("a", "b", "c")) | {"seed": None}


def fork(settings: dict[str, Any], found: Manifest, from_step: int = 0) -> dict[str, Any]:
    return fork_settings(PARENT, settings, from_step, tasks("a", "b", "c"), found)


def test_a_fork_keeps_the_parents_order_and_new_tasks_follow() -> None:
    before = tasks("b", "c", "a")
    found = in_order_of(before, tasks("a", "b", "d", "c", "aa"))
    assert [task.name for task in found] == ["b", "c", "a", "d", "aa"]
    assert [task.name for task in in_order_of(before, tasks("a", "b"))] == ["b", "a"]


def test_a_fork_with_other_tasks_plays_all_of_them() -> None:
    found = tasks("a", "b", "c", "d")
    changes = fork({"tasks": {"path": "/other"}}, found)
    assert changes["tasks"]["manifest"] == bytes_digest(manifest.encode(found))
    assert changes["tasks"]["path"] == "/other"
    assert (changes["n_worlds"], changes["n_steps"]) == (4, 2)
    assert "prompts_per_step" not in changes, "so that each task keeps its place"


def test_a_fork_without_other_tasks_changes_nothing_of_them() -> None:
    same = tasks("a", "b", "c")
    assert fork({"n_samples": 2}, same) == {"n_samples": 2}
    assert fork({"prompts_per_step": 2}, same) == {"prompts_per_step": 2, "n_steps": 2}
    assert fork({"n_steps": 1}, same) == {"n_steps": 1}


@pytest.mark.parametrize(
    ("settings", "names", "from_step", "field"),
    [
        ({"n_steps": 2}, "abc", 0, "n_steps"),
        ({"n_worlds": 2}, "abc", 0, "n_worlds"),
        ({"tasks": {"path": "/t"}, "n_steps": 3}, "abcd", 0, "n_steps"),
        ({"prompts_per_step": 2}, "abc", 1, "prompts_per_step"),
        ({"tasks": {"path": "/t"}}, "acd", 1, "tasks"),
    ],
)
def test_a_fork_that_contradicts_itself_is_refused(
    settings: dict[str, Any], names: str, from_step: int, field: str
) -> None:
    with pytest.raises(TasksRefusedError) as caught:
        fork(settings, tasks(*names), from_step)
    assert [name for name, _ in caught.value.errors] == [field]


def test_kept_steps_may_be_of_changed_tasks_of_the_same_names() -> None:
    changes = fork({"tasks": {"path": "/t"}}, tasks("a", "b", "c", "d"), from_step=1)
    assert changes["n_steps"] == 2
