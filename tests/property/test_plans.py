"""A dry run promises only what is certain, and never less than what is done: whatever is forked, at
whatever moment, with whatever changes."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from pydantic import ValidationError
from support.ended import SHAPE
from support.expected import assert_expected
from support.forked import CHANGES, MODES, Mode
from support.outcomes import one_by_one
from support.site import now
from support.trees import Tree, needless
from trialog.driver.forking import ForkRefusedError
from trialog.driver.planning import counted
from trialog.proto import events as ev

SKIPS: dict[str, Any] = {"faults": {"always_fail": ["s0-p1-n0", "s1-p0-n1"]}}
# Few turns and many samples: twins, that share the calls of a rubric's criteria.
TWINS: dict[str, Any] = {"max_turns": 1, "n_samples": 5, "rubric": one_by_one()}
KINDS = ("build_world", "generate", "verify", "judge_call", "judge", "train_step")
BACK: dict[str, Any] = {"lr": 2.0}
"""As the root of a family trains, of which one run trains otherwise."""
ALL: list[dict[str, Any]] = [
    *CHANGES,
    BACK,
    BACK | {"versions": {"agent": "2"}},
    BACK | {"versions": {"verifier": "2"}},
    BACK | {"judge": {"model": "another"}},
]


@cache
def grown(name: str) -> Tree:
    """Return a tree whose runs have all ended."""
    tree = Tree()
    match name:
        case "one":
            tree.ended_run(**SHAPE)
        case "skips":
            tree.ended_run(**SHAPE | SKIPS)
        case "twins":
            tree.ended_run(**SHAPE | TWINS)
        case "kept":
            tree.ended_fork(tree.ended_run(**SHAPE), from_step=1, n_samples=3, lr=1.0)
        case "rescored":
            tree.ended_fork(tree.ended_run(**SHAPE), mode="rescore", rubric="v2-efficiency")
        case _:
            one = tree.ended_fork(tree.ended_run(**SHAPE), lr=1.0)
            tree.ended_fork(one, rubric="v2-efficiency")
            tree.ended_fork(one, n_steps=3)
    return tree


TREES = ("one", "skips", "twins", "kept", "rescored", "family")


def planned(tree: Tree, request: ev.RunRequested) -> dict[str, Any]:
    """Return the plan of a fork."""
    return now(counted(tree.log, 0, request)).shown({})


def assert_within(tree: Tree, fork: str, plan: dict[str, Any]) -> None:
    """Hold what a fork did against its plan: at least and at most so much of each kind.

    A trial that fails for good is none that was executed: its actions are promised all the same.
    """
    doc = tree.document(fork)
    found = doc["counts"]
    for kind in KINDS:
        said = plan["totals"][kind]
        done, recovered = found["executed"][kind], found["recovered"][kind]
        skipped = found["skipped"] if kind in ("generate", "verify", "judge") else 0
        assert done <= said["executed"] + said["unknown"], f"{kind}: {done} of {said}"
        assert said["executed"] <= done + skipped, f"{kind}: {done} of {said}"
        assert said["recovered"] <= recovered, f"{kind}: {recovered} recovered of {said}"
        if not said["unknown"]:
            assert said["recovered"] == recovered, f"{kind}: {recovered} recovered of {said}"
        assert done + recovered <= sum(said.values()), kind
    for row in plan["steps"]:
        for kind, count in row["actions"].items():
            assert bool(count["reasons"]) == bool(count["executed"] + count["unknown"]), kind


@given(
    name=st.sampled_from(TREES),
    at=st.floats(0, 1),
    whose=st.floats(0, 1, exclude_max=True),
    bodies=st.lists(st.sampled_from([*CHANGES, BACK]), min_size=1, max_size=2),
    mode=st.sampled_from(MODES),
)
def test_a_fork_does_what_its_plan_said(
    name: str, at: float, whose: float, bodies: list[dict[str, Any]], mode: Mode | None
) -> None:
    whole = grown(name)
    tree = whole.cut(1 + round(at * (len(whole.store.events[0]) - 1)))
    parent = list(tree.outcomes)[int(whose * len(tree.outcomes))]
    body = {setting: value for each in bodies for setting, value in each.items()}
    try:
        request = tree.forked(parent, mode=mode, **body)
    except (ForkRefusedError, ValidationError):
        assume(False)
        raise
    plan = planned(tree, request)
    before = tree.http_calls.total()
    run_id = tree.end(tree.ask("r-zzzzzzzzzzzzzzzz", request))
    assert_expected(tree, run_id)
    assert needless(tree, run_id) == set()
    assert_within(tree, run_id, plan)
    calls = plan["estimate"]["judge_calls"]
    assert calls["at_least"] <= tree.http_calls.total() - before <= calls["at_most"]
    event(f"{name}: unknown" if any(t["unknown"] for t in plan["totals"].values()) else name)


@pytest.mark.parametrize("name", TREES)
def test_forks_of_ended_runs_do_what_their_plans_said(name: str) -> None:
    whole = grown(name)
    for parent, body in itertools.product(list(whole.outcomes), ALL):
        tree = whole.cut(len(whole.store.events[0]))
        other: Mode = "recompute" if whole.outcomes[parent].rescores else "rescore"
        for mode in (None, other):
            try:
                request = tree.forked(parent, mode=mode, **body)
            except (ForkRefusedError, ValidationError):
                continue
            plan = planned(tree, request)
            run_id = tree.end(tree.ask(tree.new_id(), request))
            assert_expected(tree, run_id)
            assert_within(tree, run_id, plan)
