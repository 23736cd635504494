"""What a run may be asked to do, and what is refused, naming the field."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError
from trialog.proto import runspec
from trialog.proto.runspec import RunSpec


def test_the_defaults_are_the_reference_run() -> None:
    spec = RunSpec()
    assert (spec.n_steps, spec.n_worlds, spec.prompts_per_step, spec.n_samples) == (3, 3, 3, 2)
    assert (spec.max_turns, spec.lr, spec.seed, spec.rubric) == (6, 2.0, None, "v1")
    assert (spec.tool_latency_s, spec.judge_latency_s) == (0.2, 0.5)
    assert (spec.retries.trial, spec.retries.judge) == (1, 2)
    assert (spec.timeouts.trial_s, spec.timeouts.step_s, spec.timeouts.judge_s) == (300, 600, 60)
    assert spec.trials_per_step == 6


def test_what_is_recorded_is_whole_and_loads_again() -> None:
    spec = RunSpec(seed=7, labels={"team": "a"}, rubric="v2-efficiency")
    recorded = json.loads(json.dumps(spec.recorded()))
    assert recorded["rubric"]["name"] == "v2-efficiency"
    assert recorded["timeouts"]["trial_s"] == 300
    again = runspec.load(recorded)
    assert again.recorded() == spec.recorded()
    assert again.resolved_rubric == spec.resolved_rubric


def test_a_text_that_was_recorded_before_it_was_refused_still_loads() -> None:
    recorded = RunSpec().recorded()
    recorded["rubric"]["criteria"][0]["prompt"] = "a\0"
    assert runspec.load(recorded).recorded() == recorded


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"n_step": 3}, "n_step"),
        ({"n_steps": "3"}, "n_steps"),
        ({"n_steps": True}, "n_steps"),
        ({"n_steps": 0}, "n_steps"),
        ({"n_steps": -1}, "n_steps"),
        ({"n_steps": 2.5}, "n_steps"),
        ({"n_steps": 100_001}, "n_steps"),
        ({"n_worlds": 0}, "n_worlds"),
        ({"prompts_per_step": 20_001}, "prompts_per_step"),
        ({"prompts_per_step": 1000, "n_samples": 21}, "limit is 20000 trials"),
        ({"max_turns": 9}, "max_turns"),
        ({"lr": math.nan}, "lr"),
        ({"lr": math.inf}, "lr"),
        ({"lr": -1.0}, "lr"),
        ({"rubric": "v3"}, "known are instant, task, v1, v2-efficiency"),
        ({"rubric": {"name": "x", "criteria": []}}, "criteria"),
        ({"seed": 2**53 + 1}, "seed"),
        ({"tool_latency_s": -0.1}, "tool_latency_s"),
        ({"retries": {"trial": -1}}, "retries.trial"),
        ({"retries": {"world": 1}}, "retries.world"),
        ({"timeouts": {"judge_s": 0}}, "timeouts.judge_s"),
        ({"timeouts": {"trial_s": math.inf}}, "timeouts.trial_s"),
        ({"faults": {"flaky_trial_rate": 1.1}}, "faults.flaky_trial_rate"),
        ({"faults": {"judge_flake_rate": math.nan}}, "faults.judge_flake_rate"),
        ({"faults": {"hang": ["s0-p0-n0", "s9-p0-n0"]}}, "faults.hang.1 names s9-p0-n0, which is"),
        ({"faults": {"always_fail": ["s0-p3-n0"]}}, "faults.always_fail.0 names s0-p3-n0"),
        ({"faults": {"straggler": {"s0-p0-n2": 1.0}}}, "faults.straggler.s0-p0-n2 names s0-p0-n2"),
        ({"faults": {"hang": ["s00-p0-n0"]}}, "faults.hang.0"),
        ({"faults": {"hang": ["s\u0660-p0-n0"]}}, "faults.hang.0"),
        ({"faults": {"hang": ["s0-p0-n0\n"]}}, "faults.hang.0"),
        ({"faults": {"straggler": {"s00-p0-n0": 1.0}}}, "faults.straggler.s00-p0-n0"),
        ({"faults": {"crash_driver_after_step": 3}}, "faults.crash_driver_after_step is 3"),
        ({"faults": {"crash_driver_after_step": 100_001}}, "faults.crash_driver_after_step"),
        ({"group_policy": {"max_untrained_steps": 100_001}}, "group_policy.max_untrained_steps"),
        ({"faults": {"hang": ["../etc"]}}, "faults.hang"),
        ({"group_policy": {"mode": "padded"}}, "group_policy.mode"),
        ({"group_policy": {"min_size": 3}}, "min_size is above n_samples"),
        ({"group_policy": {"straggler": {"after_fraction": 1.0}}}, "after_fraction"),
        ({"group_policy": {"max_untrained_steps": 0}}, "max_untrained_steps"),
        ({"agent": "opus"}, "agent"),
        ({"labels": {"Team": "a"}}, "labels"),
        ({"labels": {"team": "a\nb"}}, "labels.team"),
        ({"labels": {"team": "a\0"}}, "labels.team"),
        ({"labels": {"team": "\ud800"}}, "labels.team"),
        ({"labels": {f"k{n}": "v" for n in range(33)}}, "labels"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate(settings)
    places = [".".join(map(str, problem["loc"])) for problem in refused.value.errors()]
    said = [problem["msg"] for problem in refused.value.errors()]
    assert any(field in text for text in [*places, *said]), (places, said)


@pytest.mark.parametrize(
    ("text", "count"),
    [("3.0", 3), ("3e0", 3), ("0.3e1", 3), ("3.5", None), ("1e400", None), ("true", None)],
)
def test_a_count_may_be_written_as_any_number_that_is_whole(text: str, count: int | None) -> None:
    for place in ('{"n_steps": %s}', '{"retries": {"lost": %s}}', '{"budget": {"tokens": %s}}'):
        if count is None:
            with pytest.raises(ValidationError, match="valid integer"):
                RunSpec.model_validate_json(place % text)
        else:
            whole, written = (RunSpec.model_validate_json(place % n) for n in (count, text))
            assert json.dumps(written.recorded()) == json.dumps(whole.recorded())


def test_a_count_that_a_float_cannot_tell_from_its_neighbour_is_refused() -> None:
    with pytest.raises(ValidationError, match="seed"):
        RunSpec.model_validate_json('{"seed": 9007199254740993.0}')


@pytest.mark.parametrize("number", [1, 1.0])
def test_a_whole_number_may_be_given_for_a_rate(number: float) -> None:
    rubric = {"name": "mine", "criteria": [{"name": "a", "weight": number}]}
    settings = {"faults": {"flaky_trial_rate": number}, "lr": number, "rubric": rubric}
    for spec in (RunSpec.model_validate(settings), runspec.load(settings)):
        assert (spec.lr, spec.resolved_rubric.weights) == (1.0, {"a": 1.0})


@pytest.mark.parametrize(
    "criteria",
    [
        [{"name": "a"}, {"name": "a"}],
        [{"name": "A"}],
        [{"name": "a", "weight": -1}],
        [{"name": "a", "weight": math.nan}],
        [{"name": "a", "weight": "1.5"}],
        [{"name": "a", "weight": True}],
        [{"name": 7}],
        [{"name": "a", "prompt": "p", "check": "correct"}],
        [{"name": "a", "prompt": "\ud800"}],
        [{"name": "a", "prompt": "a\0"}],
        [{"name": "a", "prompt": "x" * 20_001}],
        [{"name": f"a{n}"} for n in range(101)],
    ],
)
def test_a_rubric_that_cannot_be_scored_is_refused(criteria: list[dict[str, Any]]) -> None:
    with pytest.raises(ValidationError):
        RunSpec.model_validate({"rubric": {"name": "mine", "criteria": criteria}})


@pytest.mark.parametrize(
    ("rubric", "place"),
    [
        (4, ("name",)),
        (None, ("name",)),
        ({"name": "x", "criteria": []}, ("whole", "criteria")),
        ({"name": "x", "criteria": [{"name": "A"}]}, ("whole", "criteria", 0, "name")),
        ({"name": "X", "criteria": [{"name": "a"}]}, ("whole", "name")),
    ],
)
def test_one_mistake_in_a_rubric_is_one_error(rubric: Any, place: tuple[str | int, ...]) -> None:
    for read in (RunSpec.model_validate, runspec.load):
        with pytest.raises(ValidationError) as refused:
            read({"rubric": rubric})
        assert [error["loc"] for error in refused.value.errors()] == [("rubric", *place)]


def test_scoring_by_check_needs_checks() -> None:
    rubric = {"name": "mine", "scoring": "check", "criteria": [{"name": "a"}]}
    with pytest.raises(ValidationError, match="needs a check in every criterion"):
        RunSpec.model_validate({"rubric": rubric})


def test_a_rubrics_digest_holds_its_weights() -> None:
    first = RunSpec.model_validate({"rubric": {"name": "m", "criteria": [{"name": "a"}]}})
    heavier = {"name": "m", "criteria": [{"name": "a", "weight": 2}]}
    second = RunSpec.model_validate({"rubric": heavier})
    assert first.resolved_rubric.digest != second.resolved_rubric.digest
    assert second.resolved_rubric.weights == {"a": 2.0}
