"""A run's progress folded from its events."""

from typing import Any

from support.fake_api import make_event
from trialog.cli.progress import RunProgress, step_of


def fold(*facts: tuple[str, dict[str, Any]]) -> RunProgress:
    progress = RunProgress()
    for position, (type_, data) in enumerate(facts, start=1):
        progress.apply(make_event(position, type_, **data))
    return progress


def trial(name: str, **data: Any) -> dict[str, Any]:
    return {"trial_id": name, "step": int(name[1]), **data}


ONE_STEP: list[tuple[str, dict[str, Any]]] = [
    ("RunRequested", {"spec": {"n_steps": 2}}),
    ("WorldRequested", {"world_id": "w0"}),
    ("WorldBuilt", {"world_id": "w0"}),
    ("TrialRequested", trial("s0-p0-n0")),
    ("TrialRequested", trial("s0-p0-n1")),
    ("TrialRequested", trial("s0-p0-n2")),
    ("TrialAttemptFailed", {"subject": "s0-p0-n1", "stage": "generate", "failure": "injected"}),
    ("TrialRetryScheduled", {"subject": "s0-p0-n1", "stage": "generate", "n": 0}),
    ("TrialAttemptFailed", {"subject": "s0-p0-n0", "stage": "generate", "failure": "lost"}),
    ("TrajectoryRecorded", trial("s0-p0-n0")),
    ("TrajectoryRecorded", trial("s0-p0-n1")),
    ("JudgeCallRecorded", {"trial_id": "s0-p0-n0", "valid": True}),
    ("Judged", trial("s0-p0-n0", reward=2.0, n_turns=1)),
    ("Judged", trial("s0-p0-n1", reward=1.001, n_turns=2)),
    ("TrialSkipped", trial("s0-p0-n2", reason="timeout")),
]


def test_a_step_is_counted():
    progress = fold(*ONE_STEP)
    step = progress.steps[0]
    assert (step.requested, step.recorded, step.judged, step.skipped) == (3, 2, 2, 1)
    assert (step.retries, step.lost, step.judge_calls) == (1, 1, 1)
    assert (step.mean_reward, step.mean_turns) == (1.5, 1.5)
    assert not step.applied
    assert (progress.worlds_requested, progress.worlds_built, progress.n_steps) == (1, 1, 2)


def test_an_applied_step_shows_its_recorded_means_and_time():
    facts = [
        *ONE_STEP,
        ("StepRequested", {"step": 0}),
        ("StepApplied", {"step": 0, "trained": True, "mean_reward": 1.501, "mean_turns": 1.5}),
        ("TrialRequested", trial("s1-p0-n0")),
    ]
    progress = fold(*facts)
    assert progress.steps[0].mean_reward == 1.501
    assert progress.steps[0].elapsed_s == 13  # events 4 to 17, one a second
    assert progress.elapsed_s == 17
    assert progress.steps_applied == 1
    assert progress.steps[1].requested == 1


def test_a_step_with_nothing_scored_has_no_means():
    progress = fold(
        ("TrialSkipped", trial("s0-p0-n0", reason="timeout")),
        ("StepApplied", {"step": 0, "trained": False}),
    )
    assert progress.steps[0].mean_reward is None
    assert progress.steps[0].applied
    assert not progress.steps[0].trained


def test_recovered_facts_are_no_new_calls():
    source = {"provenance": {"run_id": "r-abcdefghijklmnop", "position": 3}}
    progress = fold(
        ("TrajectoryRecorded", trial("s0-p0-n0", **source)),
        ("JudgeCallRecorded", {"trial_id": "s0-p0-n0", **source}),
    )
    assert progress.steps[0].recovered == 1
    assert progress.steps[0].judge_calls == 0


def test_the_run_has_its_state_and_reason():
    assert fold(("RunPaused", {"n": 0, "reason": "budget"})).reason == "budget"
    assert fold(("RunPaused", {"n": 0, "reason": "x"}), ("RunResumed", {"n": 0})).reason == ""
    ended = fold(("FaultInjected", {"kind": "crash", "step": 1}), ("RunFailed", {"reason": "why"}))
    assert (ended.state, ended.reason, ended.ended) == ("failed", "why", True)
    assert ended.faults == ["crash"]


def test_an_event_seen_again_and_one_of_the_future_change_nothing():
    progress = fold(*ONE_STEP)
    progress.apply(make_event(4, "TrialRequested", **trial("s0-p0-n0")))
    progress.apply(make_event(99, "SomethingNew", anything=1))
    assert progress.steps[0].requested == 3
    assert progress.position == 99


def test_the_step_of_an_event():
    assert step_of({"step": 3}) == 3
    assert step_of({"trial_id": "s2-p0-n0"}) == 2
    assert step_of({"subject": "s4-p0-n0", "stage": "judge"}) == 4
    assert step_of({"subject": "step-5", "stage": "train_step"}) == 5
    assert step_of({"subject": "w0", "stage": "build_world"}) is None
    assert step_of({}) is None
