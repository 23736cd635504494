"""What follows from a state: the whole course of a run, and every policy for what goes wrong."""

from __future__ import annotations

import json

import pytest
from support.folding import Folded
from trialog.driver import state as fold
from trialog.proto import events as ev
from trialog.proto.canonical import bytes_digest


def names(facts: list[ev.Fact]) -> list[str]:
    return [type(fact).__name__ for fact in facts]


def test_worlds_first_and_each_trial_once_its_world_stands() -> None:
    run = Folded()
    assert names(run.settle()) == ["WorldRequested"] * 3
    run.record(ev.WorldBuilt("w1", "k", "d"))
    run.settle()
    asked = [fact.trial_id for fact in run.of(ev.TrialRequested)]
    assert asked == ["s0-p1-n0", "s0-p1-n1"]
    run.record(ev.WorldBuilt("w0", "k", "d"), ev.WorldBuilt("w2", "k", "d"))
    assert len(run.settle()) == 4
    assert run.settle() == []


def test_only_worlds_that_prompts_play_in_are_built() -> None:
    run = Folded(n_worlds=5, prompts_per_step=2)
    run.settle()
    assert [fact.world_id for fact in run.of(ev.WorldRequested)] == ["w0", "w1"]


def test_a_run_goes_through_its_steps_to_its_end() -> None:
    run = Folded(n_steps=2)
    after = run.build_worlds()
    for step in range(2):
        for trial in list(run.state.open_trials()):
            run.record(run.judged(trial.trial_id))
        assert names(run.settle()) == ["StepRequested"]
        run.record(run.applied())
        assert run.state.weights_version == step + 1
        after = run.settle()
    assert names(after) == ["RunCompleted"]
    assert run.settle() == [] and run.state.finished


def test_the_manifest_is_in_text_order_of_trial_ids_whatever_ended_first() -> None:
    run = Folded(prompts_per_step=11, n_samples=1, n_worlds=1)
    run.build_worlds()
    for trial in reversed(list(run.state.open_trials())):
        run.record(run.judged(trial.trial_id))
    decision = run.decide()
    rows = json.loads(decision.blobs[0])
    order = [row["trial_id"] for row in rows]
    assert order == sorted(order) and order.index("s0-p10-n0") < order.index("s0-p2-n0")
    request = decision.facts[0]
    assert isinstance(request, ev.StepRequested)
    assert request.manifest == bytes_digest(decision.blobs[0])


def test_the_step_key_holds_the_rewards_and_not_their_order_of_arrival() -> None:
    def key(rewards: dict[str, float], order: list[str]) -> str:
        run = Folded(prompts_per_step=1, n_samples=2, n_worlds=1)
        run.build_worlds()
        for trial_id in order:
            run.record(run.judged(trial_id, rewards[trial_id]))
        request = run.decide().facts[0]
        assert isinstance(request, ev.StepRequested)
        return request.action_key

    rewards = {"s0-p0-n0": 1.0, "s0-p0-n1": 2.0}
    forth = key(rewards, ["s0-p0-n0", "s0-p0-n1"])
    assert forth == key(rewards, ["s0-p0-n1", "s0-p0-n0"])
    assert forth != key(rewards | {"s0-p0-n0": 1.5}, ["s0-p0-n0", "s0-p0-n1"])


def test_a_failed_attempt_is_scheduled_anew_within_its_stages_budget() -> None:
    run = Folded(retries={"trial": 1, "judge": 2})
    run.build_worlds()
    run.record(run.failed("s0-p0-n0", 0))
    (retry,) = run.settle()
    assert isinstance(retry, ev.TrialRetryScheduled)
    assert (retry.subject, retry.stage, retry.n) == ("s0-p0-n0", "generate", 0)
    assert run.now_ms + 50 <= retry.not_before_ms <= run.now_ms + 150
    for n in range(2):
        run.record(run.failed("s0-p0-n0", n, stage="judge"))
        assert names(run.settle()) == ["TrialRetryScheduled"]
    run.record(run.failed("s0-p0-n0", 2, stage="judge"))
    (skip,) = run.settle()
    assert isinstance(skip, ev.TrialSkipped) and skip.reason == "retries_exhausted"


def test_a_skipped_trial_leaves_the_step_going_with_one_less() -> None:
    run = Folded(retries={"trial": 0})
    run.build_worlds()
    run.record(run.failed("s0-p0-n0", 0))
    decision = run.decide()
    assert names(decision.facts) == ["TrialSkipped"]
    assert len(decision.closes) == 3, "its work is closed in all stages"
    run.settle()
    for trial in list(run.state.open_trials()):
        run.record(run.judged(trial.trial_id))
    (request,) = run.settle()
    assert isinstance(request, ev.StepRequested)
    assert (request.n_scored, request.n_skipped) == (5, 1)


def test_lost_workers_have_a_budget_of_their_own() -> None:
    run = Folded(retries={"trial": 0, "lost": 2})
    run.build_worlds()
    for n in range(2):
        run.record(run.failed("s0-p0-n0", n, failure="lost"))
        assert run.settle() == [], "whoever takes over carries on"
    run.record(run.failed("s0-p0-n0", 2, failure="lost"))
    (skip,) = run.settle()
    assert isinstance(skip, ev.TrialSkipped) and skip.reason == "workers_lost"


def test_a_step_with_nothing_scored_trains_nothing_and_fails_the_run_by_policy() -> None:
    run = Folded(retries={"trial": 0}, n_steps=3)
    run.build_worlds()
    for trial in list(run.state.open_trials()):
        run.record(run.failed(trial.trial_id, 0))
    made = run.settle()
    applied = next(f for f in made if isinstance(f, ev.StepApplied))
    assert not applied.trained and applied.digest == applied.prior_digest
    assert (applied.version, applied.n_trials, applied.n_skipped) == (1, 0, 6)
    failed = made[-1]
    assert isinstance(failed, ev.RunFailed) and "max_untrained_steps" in failed.reason


def test_more_untrained_steps_may_be_allowed() -> None:
    run = Folded(retries={"trial": 0}, group_policy={"max_untrained_steps": 2})
    run.build_worlds()
    for step in range(2):
        for trial in list(run.state.open_trials()):
            run.record(run.failed(trial.trial_id, 0))
        made = run.settle()
        assert ("RunFailed" in names(made)) == (step == 1)


def test_fail_fast_ends_the_run_with_the_first_skip() -> None:
    run = Folded(retries={"trial": 0}, group_policy={"mode": "fail_fast"})
    run.build_worlds()
    run.record(run.failed("s0-p0-n0", 0))
    made = run.settle()
    assert names(made)[:2] == ["TrialSkipped", "RunFailed"]
    assert names(made)[2:] == ["TrialCancelled"] * 5, "every open trial reaches an end"
    assert run.state.finished


def test_min_group_leaves_small_groups_out_whole() -> None:
    run = Folded(retries={"trial": 0}, group_policy={"mode": "min_group", "min_size": 2})
    run.build_worlds()
    run.record(run.failed("s0-p1-n0", 0))
    run.settle()
    for trial in list(run.state.open_trials()):
        run.record(run.judged(trial.trial_id))
    decision = run.decide()
    kept = [row["trial_id"] for row in json.loads(decision.blobs[0])]
    assert kept == ["s0-p0-n0", "s0-p0-n1", "s0-p2-n0", "s0-p2-n1"]


def test_the_step_deadline_skips_what_is_open_and_counts_from_the_first_trial() -> None:
    run = Folded(timeouts={"step_s": 60})
    run.build_worlds()
    began_ms = run.now_ms
    run.record(run.judged("s0-p0-n0"))
    assert run.decide().wake_ms == began_ms + 60_000
    run.now_ms += 59_999
    assert run.settle() == []
    run.now_ms += 1
    made = run.settle()
    assert names(made) == ["TrialSkipped"] * 5 + ["StepRequested"]
    assert {f.reason for f in made if isinstance(f, ev.TrialSkipped)} == {"step_deadline"}


def test_deadlines_stand_still_while_the_run_is_paused() -> None:
    run = Folded(timeouts={"step_s": 60})
    run.build_worlds()
    run.record(ev.RunPaused(0))
    run.now_ms += 3_600_000
    assert run.settle() == []
    run.record(ev.RunResumed(0))
    assert run.settle() == []
    run.now_ms += 60_000
    assert "TrialSkipped" in names(run.settle())


def test_nothing_new_is_asked_for_while_paused() -> None:
    run = Folded()
    run.build_worlds()
    run.record(ev.RunPaused(0), run.failed("s0-p0-n0", 0))
    assert run.settle() == []
    run.record(ev.RunResumed(0))
    assert names(run.settle()) == ["TrialRetryScheduled"]


def test_stragglers_are_cut_off_after_their_grace() -> None:
    policy = {"straggler": {"after_fraction": 0.5, "grace_s": 10}}
    run = Folded(group_policy=policy)
    run.build_worlds()
    run.record(run.judged("s0-p0-n0"), run.judged("s0-p0-n1"))
    assert run.decide().wake_ms == run.now_ms + 600_000, "only the step's deadline so far"
    run.record(run.judged("s0-p1-n0"))
    assert run.decide().wake_ms == run.now_ms + 10_000
    run.now_ms += 10_000
    made = run.settle()
    assert [f.reason for f in made if isinstance(f, ev.TrialSkipped)] == ["straggler"] * 3
    assert names(made)[-1] == "StepRequested"


def test_cancelling_ends_every_open_trial_once() -> None:
    run = Folded()
    run.build_worlds()
    run.record(run.judged("s0-p0-n0"), ev.RunCancelled("enough"))
    decision = run.decide()
    assert names(decision.facts) == ["TrialCancelled"] * 5
    assert any(key.endswith("/train_step") for key in decision.closes)
    run.record(*decision.facts)
    assert run.decide().facts == [] and run.state.finished


def test_what_comes_after_the_end_changes_nothing() -> None:
    run = Folded(retries={"trial": 0})
    run.build_worlds()
    run.record(run.failed("s0-p0-n0", 0))
    run.settle()
    run.record(run.judged("s0-p0-n0"))
    assert run.state.step is not None and run.state.step.n_skipped == 1
    late = ev.TrialVerified("s0-p0-n0", 0, "k", True, 1, "t", "b", 3)
    run.record(late)
    assert run.decide().closes == ["r-abcdefghijklmnop/s0-p0-n0/judge"], "never judged, never paid"


def test_the_crash_is_recorded_before_anything_follows_and_once() -> None:
    run = Folded(faults={"crash_driver_after_step": 0})
    run.build_worlds()
    for trial in list(run.state.open_trials()):
        run.record(run.judged(trial.trial_id))
    run.settle()
    run.record(run.applied())
    decision = run.decide()
    assert names(decision.facts) == ["FaultInjected"]
    run.record(*decision.facts)
    assert set(names(run.settle())) == {"TrialRequested"}


@pytest.mark.parametrize("stage", ["build_world", "train_step"])
def test_what_a_run_cannot_do_without_fails_it_when_its_budget_is_spent(stage: str) -> None:
    run = Folded()
    run.settle()
    subject = "w0" if stage == "build_world" else "step-0"
    for n in range(5):
        run.record(run.failed(subject, n, stage=stage, failure="infrastructure"))
        assert names(run.settle()) == ["TrialRetryScheduled"]
    run.record(run.failed(subject, 5, stage=stage, failure="infrastructure"))
    assert names(run.settle())[0] == "RunFailed"


def test_deciding_twice_from_one_state_says_the_same() -> None:
    run = Folded()
    run.build_worlds()
    run.record(run.failed("s0-p0-n0", 0))
    assert run.decide().facts == run.decide().facts


def test_nothing_follows_from_what_no_replay_reads() -> None:
    run = Folded()
    run.build_worlds()
    before = run.decide(), run.state.step
    run.record(
        ev.TrajectoryRecorded("s0-p0-n0", 0, "k", "d", "b", 3, 0),
        ev.JudgeCallStarted("s0-p0-n0", "k", 1, "*", "m"),
        ev.JudgeCallRecorded("s0-p0-n0", "k", 0, "*", "m", True, 1.0, 1, 1, 1, 1.0),
        ev.DeliveryDeadLettered("k", "trial", 0, 5, "e"),
    )
    assert {type(fact).__name__ for fact in run.facts[-4:]} == set(fold.UNFOLDED)
    assert (run.decide(), run.state.step) == before


def test_what_no_retry_mends_is_not_retried() -> None:
    run = Folded()
    run.build_worlds()
    run.record(run.failed("s0-p0-n0", 0, stage="judge", failure="task"))
    (skip,) = run.settle()
    assert isinstance(skip, ev.TrialSkipped) and skip.reason == "task_failed"
    broken = Folded()
    broken.settle()
    broken.record(broken.failed("w0", 0, stage="build_world", failure="task"))
    failed = broken.settle()[0]
    assert isinstance(failed, ev.RunFailed)
    assert failed.reason == "build_world of w0 failed once: why"
