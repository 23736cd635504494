"""A kind of action has a reason to differ if and only if its key does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from support.asked_runs import CODE_NAMES, FIELDS, PARTS, request, requests
from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.changes import changes
from trialog.proto.keys import Keys

TRIAL = "s1-p0-n0"
VERIFIED = ev.TrialVerified(
    TRIAL, 1, "k", verified=True, found_doc=3, trajectory="t", blob="b", n_turns=2
)
CHECKS: dict[str, Any] = {
    "name": "r",
    "scoring": "check",
    "criteria": [{"name": "right", "check": "correct"}],
}
KINDS = ("build_world", "generate", "verify", "judge_call", "judge", "train_step")


def keys_of(asked: ev.RunRequested) -> dict[str, set[str]]:
    """Return the keys of a trial's and its step's actions, upstream being the same for all."""
    keys = Keys(runspec.load(asked.spec), asked.code)
    return {
        "build_world": {keys.world("w0")},
        "generate": {keys.generate(TRIAL, "w", "p")},
        "verify": {keys.verify("w0", "t")},
        "judge_call": {key for _, key in keys.calls(VERIFIED)},
        "judge": {keys.judge(VERIFIED)},
        "train_step": {keys.step(1, "p", ["j"])},
    }


def differing(parent: ev.RunRequested, fork: ev.RunRequested) -> set[str]:
    """Return the kinds of which the fork has a key that the parent has not."""
    before, after = keys_of(parent), keys_of(fork)
    return {kind for kind in KINDS if after[kind] - before[kind]}


def with_reason(parent: ev.RunRequested, fork: ev.RunRequested) -> set[str]:
    found = changes(parent, fork)
    assert tuple(found) == KINDS
    assert all(len(set(reasons)) == len(reasons) for reasons in found.values())
    return {kind for kind, reasons in found.items() if reasons}


@given(st.data())
def test_a_kind_has_a_reason_if_and_only_if_its_key_differs(data: st.DataObject) -> None:
    parent = data.draw(requests())
    # Two runs drawn apart differ in nearly everything: a fork begins as its parent.
    fork = data.draw(st.just(parent) | requests(like=parent) | requests())
    assert with_reason(parent, fork) == differing(parent, fork)


@settings(max_examples=40)
@pytest.mark.parametrize("field", [*FIELDS, "code"])
@given(data=st.data())
def test_one_field_changed_is_a_reason_if_and_only_if_a_key_differs(
    field: str, data: st.DataObject
) -> None:
    parent = data.draw(requests())
    fork = data.draw(requests(like=parent, changed={field}))
    assert with_reason(parent, fork) == differing(parent, fork)


def inputs_of(asked: ev.RunRequested) -> str:
    """Return the key of a whole step's inputs."""
    spec = runspec.load(asked.spec)
    return Keys(spec, asked.code).step_inputs(1, "p", ["w0"])


@settings(max_examples=40)
@pytest.mark.parametrize("field", [*FIELDS, "code"])
@given(data=st.data())
def test_a_step_with_the_same_inputs_has_the_same_keys_all_through(
    field: str, data: st.DataObject
) -> None:
    """So recovering it whole is recovering all of it; and what has a reason is not recovered."""
    parent = data.draw(requests())
    fork = data.draw(requests(like=parent, changed={field}))
    trials = [
        (spec.n_worlds, spec.prompts_per_step, spec.n_samples)
        for spec in (runspec.load(parent.spec), runspec.load(fork.spec))
    ]
    changed = keys_of(parent) != keys_of(fork) or trials[0] != trials[1]
    assert (inputs_of(parent) != inputs_of(fork)) == changed


def test_a_fork_with_nothing_changed_has_no_reasons() -> None:
    assert changes(request(), request()) == {kind: [] for kind in KINDS}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"agent": "noop"}, {"generate": ["agent changed: policy -> noop"]}),
        ({}, {"max_turns": 4}, {"generate": ["max_turns changed: 6 -> 4"]}),
        ({"lr": 2}, {"lr": 1}, {"train_step": ["learner settings changed: lr 2.0 -> 1.0"]}),
        (
            {},
            {"faults": {"flaky_trial_rate": 0.25}},
            {"generate": ["flaky_trial_rate changed: 0.0 -> 0.25"]},
        ),
        (
            {},
            {"seed": 3},
            {
                kind: ["seed changed: none -> 3"]
                for kind in ("build_world", "generate", "verify", "judge_call", "judge")
            },
        ),
        (
            {"judge": {"model": "a"}},
            {"judge": {"model": "b"}},
            {kind: ["judge model changed: a -> b"] for kind in ("judge_call", "judge")},
        ),
        ({}, {"versions": {"agent": "2"}}, {"generate": ["agent code changed"]}),
        ({}, {"versions": {"verifier": "2"}}, {"verify": ["verifier code changed"]}),
        ({}, {"versions": {"learner": "2"}}, {"train_step": ["learner code changed"]}),
        # What no key holds.
        ({}, {"n_steps": 7, "n_samples": 1, "tool_latency_s": 0, "labels": {"a": "b"}}, {}),
        ({}, {"faults": {"judge_flake_rate": 0.5, "hang": ["s0-p0-n0"]}}, {}),
        ({}, {"provider": "null"}, {"generate": ["provider changed: bubblewrap -> null"]}),
        (
            {},
            {"timeouts": {"trial_s": 1.0}, "retries": {"trial": 9}, "budget": {"judge_calls": 1}},
            {},
        ),
    ],
)
def test_each_input_is_named_with_both_its_values(
    before: dict[str, Any], after: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    found = changes(request(before), request(after))
    assert {kind: reasons for kind, reasons in found.items() if reasons} == expected


def rubric(scoring: str, **criteria: dict[str, Any]) -> ev.RunRequested:
    rows = [{"name": name, **fields} for name, fields in criteria.items()]
    return request({"rubric": {"name": "r", "scoring": scoring, "criteria": rows}})


A, B = {"prompt": "A?"}, {"prompt": "B?"}
OTHER, HEAVY = {"prompt": "Other?"}, {"prompt": "B?", "weight": 9}
NEW_RUBRIC = ["rubric digest changed"]


@pytest.mark.parametrize(
    ("before", "after", "calls"),
    [
        (rubric("per_criterion", a=A, b=B), rubric("per_criterion", a=A, b=HEAVY), []),
        (rubric("per_criterion", a=A, b=B), rubric("per_criterion", a=A), []),
        (rubric("per_criterion", a=A, b=B), rubric("per_criterion", b=B, a=A), []),
        (
            rubric("per_criterion", a=A, b=B),
            rubric("per_criterion", a=OTHER, b=B, c=A),
            ["criterion a: prompt changed", "criterion c: added"],
        ),
        (
            rubric("holistic", a=A, b=B),
            rubric("holistic", a=OTHER, b=HEAVY),
            ["criterion a: prompt changed", "criterion b: weight changed"],
        ),
        (
            rubric("per_criterion", a=A, b=B),
            rubric("per_criterion", a=A, b=B | {"scale": [0, 5]}),
            ["criterion b: scale changed"],
        ),
        (
            rubric("holistic", a=A, b=B | {"scale": [0, 5]}),
            rubric("holistic", a=A, b=B | {"scale": [0, 10]}),
            ["criterion b: scale changed"],
        ),
        (
            rubric("holistic", a=A, b=B),
            rubric("holistic", b=B, c=A),
            ["criterion c: added", "criterion a: removed"],
        ),
        (
            rubric("holistic", a=A),
            rubric("per_criterion", a=A),
            ["scoring changed: holistic -> per_criterion"],
        ),
        (
            rubric("check", a={"check": "correct"}),
            rubric("holistic", a=A),
            ["scoring changed: check -> holistic"],
        ),
        (
            rubric("per_criterion", a={"check": "correct"}),
            rubric("per_criterion", a=A),
            ["criterion a: added"],
        ),
        (rubric("holistic", a=A), rubric("check", a={"check": "correct"}), []),
    ],
)
def test_calls_are_explained_by_their_criteria(
    before: ev.RunRequested, after: ev.RunRequested, calls: list[str]
) -> None:
    found = changes(before, after)
    assert (found["judge_call"], found["judge"]) == (calls, NEW_RUBRIC)


def test_a_rubric_of_another_name_is_another_when_it_is_sent_whole() -> None:
    found = changes(request({"rubric": "v1"}), request({"rubric": "v2-efficiency"}))
    assert found["judge_call"] == [
        "rubric name changed: v1 -> v2-efficiency",
        "criterion efficiency: weight changed",
        "criterion tidiness: weight changed",
    ]


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("agent:policy", "generate", "agent code changed"),
        ("verifier:reference", "verify", "verifier code changed"),
        ("check:correct", "judge", "check code changed: right"),
        ("learner:bandit", "train_step", "learner code changed"),
    ],
)
def test_changed_code_is_named(name: str, kind: str, reason: str) -> None:
    before, after = (request({"rubric": CHECKS}, {name: version}) for version in "xy")
    assert changes(before, after) == {each: [reason] * (each == kind) for each in KINDS}
    unknown = changes(before, request({"rubric": CHECKS}))[kind]
    assert unknown == [reason.replace("changed", "not known yet")]


def test_code_that_the_spec_declares_or_does_not_run_is_no_reason() -> None:
    declared = {
        "versions": {"agent": "1", "verifier": "1", "learner": "1"},
        "rubric": CHECKS | {"criteria": [{"name": "right", "check": "correct", "version": "1"}]},
    }
    before, after = (request(declared, dict.fromkeys(CODE_NAMES, version)) for version in "xy")
    assert with_reason(before, after) == set()
    other_agent = [request({}, {"agent:noop": version}) for version in "xy"]
    assert with_reason(*other_agent) == set()


@pytest.mark.parametrize("part", PARTS)
def test_every_setting_of_a_run_is_drawn(part: type[BaseModel]) -> None:
    """Else a new input could enter a key without a reason, and nobody would see it."""
    assert set(PARTS[part]) == set(part.model_fields)
