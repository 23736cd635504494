"""Runs that judge their parent's trajectories anew: what they take, and what they find there."""

from __future__ import annotations

from typing import Any

import pytest
from support.ended import SHAPE, ended_well
from support.trees import Tree
from trialog.driver.forking import ForkRefusedError
from trialog.proto import events as ev
from trialog.spine.log import Append, new_event


def trials(tree: Tree, run_id: str) -> set[str]:
    return {fact.trial_id for fact in tree.facts(ev.TrialRequested, run=run_id)}


def test_every_trajectory_is_judged_and_nothing_is_trained(tree: Tree, parent: str) -> None:
    fork = tree.fork(parent, mode="rescore", rubric="v2-efficiency")
    assert ended_well(tree, fork) == {"judge": 8, "judge_call": 8}
    applied = tree.facts(ev.StepApplied, run=fork)
    assert [(f.trained, f.n_trials, f.inputs_key) for f in applied] == [(False, 4, "")] * 2
    assert {fact.digest for fact in applied} == {tree.outcomes[fork].request.initial_weights}


def test_a_fork_of_a_rescoring_is_one_and_finds_its_judgments(tree: Tree, parent: str) -> None:
    one = tree.ended_fork(parent, mode="rescore", rubric="v2-efficiency")
    same = tree.fork(one)
    assert tree.outcomes[same].request.mode == "rescore"
    assert ended_well(tree, same) == {}
    assert ended_well(tree, tree.fork(one, rubric="v1")) == {}, "as the first run was judged"
    further = tree.fork(same, judge={"model": "another"})
    assert ended_well(tree, further) == {"judge": 8, "judge_call": 8}


def test_a_rescoring_can_be_trained_on(tree: Tree, parent: str) -> None:
    """The first step's judgments are there; after that the weights are others."""
    one = tree.ended_fork(parent, mode="rescore", rubric="v2-efficiency")
    before = tree.http_calls.total()
    done = ended_well(tree, tree.fork(one, mode="recompute"))
    assert done == {"generate": 4, "train_step": 2}, "and the second step's come out as they were"
    assert tree.http_calls.total() == before


def test_the_steps_of_a_rescoring_are_not_kept(tree: Tree, parent: str) -> None:
    """They trained nothing: a run that took them would fail for that, at once."""
    one = tree.ended_fork(parent, mode="rescore")
    with pytest.raises(ForkRefusedError) as refused:
        tree.fork(one, mode="recompute", from_step=1)
    assert [field for field, _ in refused.value.errors] == ["from_step"]
    assert one in str(refused.value) and "only judged" in str(refused.value)


def test_steps_that_the_parent_has_whole_are_rescored_where_their_trials_are(
    tree: Tree, parent: str
) -> None:
    kept = tree.ended_fork(parent, from_step=1, n_samples=3)
    fork = tree.fork(kept, mode="rescore", rubric="v2-efficiency")
    assert ended_well(tree, fork) == {"judge": 10, "judge_call": 10}
    assert len({t for t in trials(tree, fork) if t.startswith("s0-")}) == 4
    assert ended_well(tree, tree.fork(fork)) == {}, "and once more, where they are its own"


def test_fewer_samples_than_the_kept_steps_had_are_no_matter(tree: Tree, parent: str) -> None:
    kept = tree.ended_fork(parent, from_step=1, n_samples=1)
    fork = tree.fork(kept, mode="rescore", rubric="v2-efficiency")
    assert ended_well(tree, fork) == {"judge": 6, "judge_call": 6}
    assert ended_well(tree, tree.fork(fork)) == {}


def test_a_skipped_trial_is_no_trial_of_a_rescoring(tree: Tree) -> None:
    parent = tree.ended_run(**SHAPE | {"faults": {"always_fail": ["s0-p1-n0"]}})
    fork = tree.fork(parent, mode="rescore", rubric="v2-efficiency")
    assert ended_well(tree, fork) == {"judge": 7, "judge_call": 7}
    assert "s0-p1-n0" not in trials(tree, fork)


def test_a_verification_that_only_an_ancestor_has_is_found(tree: Tree, parent: str) -> None:
    """The parent made the trajectories anew, they came out as before, and it got no further."""
    anew = tree.fork(parent, versions={"agent": "2"})
    tree.end(anew)
    events = tree.store.events_of(anew)
    cut = next(e for e in events if isinstance(e.fact(), ev.TrajectoryRecorded))
    short = tree.cut(cut.position)
    fork = short.fork(anew, mode="rescore")
    assert ended_well(short, fork) == {}
    assert [f.provenance.run_id for f in short.facts(ev.TrialVerified, run=fork)] == [parent]
    tried = short.facts(ev.TrajectoryRecorded, run=fork)
    assert [f.provenance.run_id for f in tried] == [anew] and tried[0].settled


def test_what_came_after_the_parents_own_pin_is_not_taken(tree: Tree) -> None:
    """A kept step's trials are its run's, as far as the parent saw that run."""
    late = "s0-p1-n0"
    first = tree.ended_run(**SHAPE | {"faults": {"always_fail": [late]}})
    kept = tree.ended_fork(first, from_step=1)
    asked = next(f for f in tree.facts(ev.TrialRequested, run=first) if f.trial_id == late)
    like = next(f for f in tree.facts(ev.TrajectoryRecorded, run=first) if f.step == 0)
    fact = ev.TrajectoryRecorded(late, 0, asked.action_key, like.digest, like.blob, like.n_turns, 1)
    tree.commit(0, Append([new_event(first, fact, offered=False)])).check()
    fork = tree.fork(kept, mode="rescore")
    assert ended_well(tree, fork) == {}
    assert late not in trials(tree, fork)


@pytest.mark.parametrize(
    ("name", "value"), [("lr", 1.0), ("n_steps", 3), ("n_samples", 1), ("seed", 2)]
)
def test_what_would_change_nothing_is_refused(
    tree: Tree, parent: str, name: str, value: Any
) -> None:
    with pytest.raises(ForkRefusedError, match=f"{name}: changes nothing with mode=rescore"):
        tree.fork(parent, mode="rescore", **{name: value})
