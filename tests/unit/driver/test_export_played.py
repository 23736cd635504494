"""How the steps of a task went, from what a trial has kept."""

from __future__ import annotations

import io
from typing import Any

import pytest
from support import exports as x
from trialog.driver.export.given import given_in
from trialog.driver.export.kept import Kept, Part
from trialog.driver.export.played import steps_of
from trialog.proto.tasks.config import TaskConfig

BOTH = TaskConfig.model_validate(
    {"steps": [{"name": "build", "min_reward": 0.8}, {"name": "serve", "min_reward": {"a": 1}}]}
)
BUILD = Part("build", n_turns=3, graded={"rewards": {"reward": 0.5}})


def summed(steps: list[dict[str, Any]] | None) -> list[tuple[Any, ...]]:
    assert steps is not None
    return [(one["name"], one["played"], one["rewards"], one["stopped"]) for one in steps]


def test_a_gate_stops_what_comes_after_it() -> None:
    found = steps_of(Kept(parts=(BUILD,)), BOTH, {})
    assert summed(found) == [("build", True, {"reward": 0.5}, True), ("serve", False, None, False)]
    assert found and (found[0]["min_reward"], found[0]["n_turns"]) == (0.8, 3)


def test_a_step_that_was_not_graded_is_no_gate() -> None:
    late = Part("build", error="AgentTimeoutError", message="the agent took more than 3 s")
    found = steps_of(Kept(parts=(late,)), BOTH, {})
    assert summed(found) == [("build", True, None, False), ("serve", False, None, False)]
    assert found and (found[0]["error"], found[0]["message"]) == (late.error, late.message)


def test_all_steps_played_are_stopped_by_none() -> None:
    given = {"build": {"reward": 0.9}, "serve": {"a": 0.0}}
    found = steps_of(Kept(parts=(BUILD, Part("serve"))), BOTH, given)
    assert summed(found) == [
        ("build", True, {"reward": 0.9}, False),
        ("serve", True, {"a": 0.0}, False),
    ]


@pytest.mark.parametrize("config", [None, TaskConfig()])
def test_a_task_without_steps_has_none(config: TaskConfig | None) -> None:
    assert steps_of(Kept(parts=(Part(None),)), config, {}) is None


def test_a_task_that_is_lost_has_the_steps_that_were_played() -> None:
    assert summed(steps_of(Kept(parts=(BUILD,)), None, {})) == [
        ("build", True, {"reward": 0.5}, False)
    ]


def test_rewards_are_read_out_of_what_the_verifiers_left() -> None:
    record = x.tar(
        {
            "steps/build/reward.json": b'{"a": 0.5}',
            "steps/build/reward.txt": b"9",
            "steps/serve/reward.txt": b"1\n",
            "steps/serve/test-stdout.txt": b"reward.txt",
            "steps/late/reward.txt": b"none",
            "reward.txt": b"3",
        },
        gz=True,
    )
    assert given_in(io.BytesIO(record)) == {"build": {"a": 0.5}, "serve": {"reward": 1.0}}
    assert given_in(io.BytesIO(b"")) == {}
