"""Forks of a run as it was at every position of its log: what was recorded by then is recovered,
exactly the rest is executed, and the end is that of a run of its own (I9).

The tree is cut at the position: what was under way then is never gone on with, as if all workers of
the parent had died. A judge call that was out is taken over when its time is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.ended import SHAPE
from support.expected import assert_expected
from support.sources import assert_sources
from support.trees import Tree, counted, executed, inherited, needless
from trialog.driver.forking import ForkRefusedError
from trialog.proto import events as ev


@pytest.fixture(scope="module")
def whole() -> Tree:
    """A tree of one run, ended."""
    tree = Tree()
    tree.ended_run(**SHAPE)
    return tree


@pytest.fixture(scope="module")
def forked() -> Tree:
    """A run, its fork under another rubric, and a fork of that with its first step kept."""
    tree = Tree()
    one = tree.ended_fork(tree.ended_run(**SHAPE), rubric="v2-efficiency")
    tree.ended_fork(one, from_step=1, lr=1.0, n_samples=3)
    return tree


def cuts(tree: Tree, run_id: str) -> Iterator[tuple[int, Tree]]:
    """Yield the tree as it was at every position from a run's request on."""
    events = tree.store.events_of(run_id)
    for position in range(events[0].position, events[-1].position + 1):
        yield position, tree.cut(position)


def held_well(tree: Tree, fork: str) -> None:
    """Hold an ended fork to the model, to its sources, and to I9."""
    assert_expected(tree, fork)
    assert_sources(tree, fork)
    assert needless(tree, fork) == set()


def test_an_unchanged_fork_executes_exactly_what_was_not_recorded_by_then(whole: Tree) -> None:
    (parent,) = whole.outcomes
    every = executed(whole, parent)
    weights = whole.facts(ev.RunCompleted)[0].weights_digest
    seen = 0
    for position, tree in cuts(whole, parent):
        fork = tree.ended_fork(parent)
        held_well(tree, fork)
        assert executed(tree, fork) == every - inherited(tree, fork), f"at {position}"
        (completed,) = tree.facts(ev.RunCompleted, run=fork)
        assert completed.weights_digest == weights
        seen += 1
    assert seen == len(whole.facts()) > 60


def test_a_fork_of_a_fork_executes_exactly_what_neither_had_by_then(forked: Tree) -> None:
    for run_id in list(forked.outcomes)[1:]:
        every = executed(forked, run_id)
        weights = forked.facts(ev.RunCompleted, run=run_id)[0].weights_digest
        kept = forked.outcomes[run_id].request.from_step
        for position, tree in cuts(forked, run_id):
            if tree.document(run_id)["steps_applied"] < kept:
                continue
            fork = tree.ended_fork(run_id, from_step=kept)
            held_well(tree, fork)
            assert executed(tree, fork) == every - inherited(tree, fork), f"at {position}"
            assert tree.facts(ev.RunCompleted, run=fork)[0].weights_digest == weights


CHANGES: list[dict[str, Any]] = [
    {"rubric": "v2-efficiency"},
    {"lr": 1.0},
    {"versions": {"agent": "2"}},
    {"versions": {"verifier": "2"}},
    {"n_samples": 3, "judge": {"model": "another"}},
    {"n_steps": 3},
    {"from_step": 1, "n_samples": 1},
    {"seed": 7},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: "-".join(change))
def test_a_changed_fork_executes_nothing_that_was_recorded_by_then(
    whole: Tree, change: dict[str, Any]
) -> None:
    (parent,) = whole.outcomes
    for _, tree in cuts(whole, parent):
        try:
            fork = tree.fork(parent, **change)
        except ForkRefusedError as error:
            assert change.get("from_step", 0) > tree.document(parent)["steps_applied"], error
            continue
        before = tree.http_calls.total()
        tree.end(fork)
        held_well(tree, fork)
        assert tree.http_calls.total() - before == counted(executed(tree, fork)).get(
            "judge_call", 0
        )


def test_a_fork_that_was_pinned_goes_the_same_way_whatever_the_parent_does_after(
    whole: Tree,
) -> None:
    """The parent goes on while the fork does: only its judge calls are shared."""
    (parent,) = whole.outcomes
    every = executed(whole, parent)
    for position, tree in cuts(whole, parent):
        if position % 3:
            continue
        fork = tree.fork(parent)
        tree.end(parent)
        before = tree.http_calls.total()
        tree.end(fork)
        held_well(tree, fork)
        done = executed(tree, fork)
        wanted = {action for action in every - inherited(tree, fork) if action[0] != "judge_call"}
        assert done == wanted, "but for the calls, which the parent had made"
        assert tree.http_calls.total() == before


@pytest.mark.parametrize("rubric", ["v1", "v2-efficiency"])
def test_a_rescoring_judges_the_trajectories_that_were_there(whole: Tree, rubric: str) -> None:
    """A trial without a trajectory is left out; one without a verification is verified."""
    (parent,) = whole.outcomes
    partial = 0
    for _, tree in cuts(whole, parent):
        if tree.document(parent)["current_step"] is None:
            with pytest.raises(ForkRefusedError, match="no trajectory to score"):
                tree.fork(parent, mode="rescore")
            continue
        fork = tree.ended_fork(parent, mode="rescore", rubric=rubric)
        held_well(tree, fork)
        there = {kind: _subjects(tree, parent, kind) for kind in ("generate", "verify", "judge")}
        made = {kind: _executed(tree, fork, kind) for kind in there}
        assert made["generate"] == set()
        assert made["verify"] == there["generate"] - there["verify"]
        same = there["judge"] if rubric == "v1" else set[str]()
        assert made["judge"] == there["generate"] - same
        assert not tree.facts(ev.WorldRequested, ev.StepRequested, run=fork)
        partial += bool(made["verify"])
        again = tree.ended_fork(fork)
        held_well(tree, again)
        assert executed(tree, again) == set(), "an unchanged fork of a rescoring"
    assert partial > 3


def _executed(tree: Tree, run_id: str, kind: str) -> set[str]:
    return {subject for each, subject, _ in executed(tree, run_id) if each == kind}


def _subjects(tree: Tree, run_id: str, kind: str) -> set[str]:
    """What an uncut parent has: all of it is its own."""
    return _executed(tree, run_id, kind)
