"""Runs without a learner, of tasks and of the reference world: a step is a batch of trials."""

from __future__ import annotations

from typing import Any

import pytest
from support.ended import SHAPE
from support.folding import Folded
from support.trees import Tree, counted, executed
from trialog.proto import events as ev
from trialog.proto.tasks.manifest import Manifest, TaskRef

BATCHES = SHAPE | {"learner": "none"}


def tasks(n: int) -> Manifest:
    return tuple(TaskRef(f"t{i}", f"blob{i}", f"e{i}", f"a{i}", f"s{i}", f"v{i}") for i in range(n))


def of_tasks(n: int, **settings: Any) -> Folded:
    """A run of n tasks, two a batch."""
    return Folded(
        tasks(n),
        tasks={"manifest": "0" * 64, "count": n},
        agent="nop",
        learner="none",
        rubric="task",
        n_worlds=n,
        prompts_per_step=2,
        n_samples=1,
        n_steps=-(-n // 2),
        **settings,
    )


def test_nothing_is_trained_and_means_are_there(tree: Tree) -> None:
    run = tree.ended_run(**BATCHES)
    assert tree.facts(ev.StepRequested, run=run) == []
    applied = tree.facts(ev.StepApplied, run=run)
    assert [(fact.trained, fact.version, fact.n_trials) for fact in applied] == [
        (False, 1, 4),
        (False, 2, 4),
    ]
    assert all(fact.mean_reward is not None for fact in applied)
    assert {fact.digest for fact in applied} == {tree.outcomes[run].request.initial_weights}
    assert tree.facts(ev.RunCompleted, run=run)


def test_an_unchanged_fork_is_its_whole_batches(tree: Tree) -> None:
    parent = tree.ended_run(**BATCHES)
    fork = tree.ended_fork(parent)
    assert [fact.whole for fact in tree.facts(ev.StepApplied, run=fork)] == [True, True]
    assert tree.facts(ev.TrialRequested, run=fork) == []


def test_a_later_batch_does_not_depend_on_an_earlier_one(tree: Tree) -> None:
    """Judged by other weights, the second batch's trajectories are still those of the parent."""
    parent = tree.ended_run(**BATCHES)
    fork = tree.ended_fork(parent, rubric="v2-efficiency")
    assert counted(executed(tree, fork)) == {"judge": 8, "judge_call": 8}


def test_a_batch_with_nothing_scored_ends_no_run() -> None:
    run = of_tasks(3)
    run.build_worlds()
    for trial in ("s0-p0-n0", "s0-p1-n0"):
        run.record(ev.TrialAttemptFailed(trial, "verify", 0, "task", False, "no file", "", "X"))
    made = run.settle()
    skips = [fact for fact in made if isinstance(fact, ev.TrialSkipped)]
    assert [(fact.reason, fact.error) for fact in skips] == [("task_failed", "X")] * 2
    assert {fact.message for fact in skips} == {"verify: no file"}
    (applied,) = [fact for fact in made if isinstance(fact, ev.StepApplied)]
    assert (applied.n_trials, applied.n_skipped, applied.mean_reward) == (0, 2, None)
    assert applied.inputs_key == "", "it is tried again by a fork"
    assert run.state.end is None and run.state.step is not None


def test_each_batch_asks_for_its_own_tasks() -> None:
    run = of_tasks(5)
    while run.state.step is not None:
        step = run.state.step.number
        run.build_worlds()
        assert run.of(ev.WorldRequested)[-1].world_id == f"w{min(2 * step + 1, 4)}", "no further"
        trials = run.of(ev.TrialRequested, where=lambda fact, step=step: fact.step == step)
        run.record(*(run.judged(fact.trial_id) for fact in trials))
        run.settle()
    assert [fact.task for fact in run.of(ev.WorldRequested)] == [f"blob{n}" for n in range(5)]
    assert [(fact.step, fact.world_id) for fact in run.of(ev.TrialRequested)] == [
        *((0, "w0"), (0, "w1")),
        *((1, "w2"), (1, "w3")),
        (2, "w4"),
    ]
    assert run.state.end == "RunCompleted"


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_last_batch_may_be_smaller(n: int) -> None:
    run = of_tasks(n)
    run.build_worlds()
    assert len(run.of(ev.TrialRequested)) == min(n, 2)


def test_an_image_that_cannot_be_built_costs_its_own_trials_alone() -> None:
    run = of_tasks(4)
    run.settle()
    run.record(
        ev.WorldBuilt("w0", "k", "digest-w0"),
        ev.TrialAttemptFailed("w1", "build_world", 0, "task", False, "RUN x", "", "ImageError"),
    )
    made = run.settle()
    (request,) = [f for f in made if isinstance(f, ev.TrialRequested) and f.world_id == "w1"]
    assert request.settled and request.world_digest == "", "nobody is to try it"
    (skip,) = [f for f in made if isinstance(f, ev.TrialSkipped)]
    assert (skip.trial_id, skip.reason, skip.error) == ("s0-p1-n0", "task_failed", "ImageError")
    assert skip.message == "build_world of t1 (w1): RUN x"
    assert run.state.step is not None and run.state.step.n_open == 1
    assert run.decide().facts == [] and run.decide().closes == [
        f"{run.state.run_id}/w1/build_world"
    ]
    run.record(run.judged("s0-p0-n0"))
    run.settle()
    (applied,) = run.of(ev.StepApplied)
    assert (applied.n_trials, applied.n_skipped) == (1, 1)
    assert run.state.failed == {} and run.state.end is None
    run.build_worlds()
    assert [fact.world_id for fact in run.of(ev.TrialRequested)][2:] == ["w2", "w3"]


def test_an_image_is_built_again_as_often_as_the_infrastructure_may_fail() -> None:
    run = of_tasks(1)
    run.settle()
    run.record(ev.TrialAttemptFailed("w0", "build_world", 0, "infrastructure", False, "disk"))
    (retry,) = run.settle()
    assert isinstance(retry, ev.TrialRetryScheduled) and retry.subject == "w0"


def test_under_fail_fast_a_broken_image_ends_the_run() -> None:
    run = of_tasks(2, group_policy={"mode": "fail_fast"})
    run.settle()
    for world in ("w0", "w1"):
        run.record(ev.TrialAttemptFailed(world, "build_world", 0, "task", False, "RUN x", "", "E"))
    run.settle()
    assert run.state.end == "RunFailed"
    assert run.of(ev.RunFailed)[0].reason.endswith("fail_fast: build_world of t0 (w0): RUN x")
    assert len(run.of(ev.TrialSkipped)) == 1


def test_lost_services_are_not_looked_for_again() -> None:
    run = of_tasks(1)
    run.build_worlds()
    lost = ("infrastructure", False, "gone", "", "ServicesLostError")
    run.record(ev.TrialAttemptFailed("s0-p0-n0", "verify", 0, *lost))
    made = run.settle()
    (skip,) = [fact for fact in made if isinstance(fact, ev.TrialSkipped)]
    assert (skip.reason, skip.error) == ("services_lost", "ServicesLostError")
