"""What a run does with trials that fail, hang, straggle or never end, on every real service."""

from __future__ import annotations

from support import reference
from support.cluster import QUICK, Cluster, at
from support.verdicts import assert_model

SMALL = {"n_steps": 1, "prompts_per_step": 3, "n_samples": 1}
FIRST = "s0-p0-n0"


def test_a_trial_that_always_fails_is_skipped_and_the_step_goes_on(cluster: Cluster) -> None:
    run = cluster.run(**QUICK, n_steps=2, faults={"always_fail": [FIRST]})
    assert run.wait()["state"] == "completed"
    trial = run.trials()[FIRST]
    assert (trial["state"], trial["attempts"], trial["reward"]) == ("skipped", 2, None)
    step = run.get()["steps"][0]
    assert (step["n_trials"], step["n_skipped"]) == (5, 1)
    assert_model(run, reference.Settings(n_steps=2, skipped=frozenset({FIRST})))


def test_a_step_with_nothing_scored_trains_nothing_and_ends_the_run(cluster: Cluster) -> None:
    everyone = [f"s0-p{p}-n0" for p in range(3)]
    run = cluster.run(**QUICK, **SMALL, faults={"always_fail": everyone}, retries={"trial": 0})
    ended = run.wait()
    assert ended["state"] == "failed" and "max_untrained_steps" in ended["failure"]
    (applied,) = run.events("StepApplied")
    assert applied["data"]["trained"] is False
    assert run.prior(1) == run.prior(0)
    assert ended["steps"][0]["mean_reward"] is None, "no score is not a zero (I11)"


def test_fail_fast(cluster: Cluster) -> None:
    run = cluster.run(
        **QUICK,
        faults={"always_fail": [FIRST]},
        retries={"trial": 0},
        group_policy={"mode": "fail_fast"},
    )
    ended = run.wait()
    assert ended["state"] == "failed" and FIRST in ended["failure"]
    assert {t["state"] for t in run.trials().values()} <= {"judged", "skipped", "cancelled"}


def test_min_group_leaves_a_small_group_out(cluster: Cluster) -> None:
    run = cluster.run(
        **QUICK,
        n_steps=1,
        faults={"always_fail": ["s0-p1-n0"]},
        retries={"trial": 0},
        group_policy={"mode": "min_group", "min_size": 2},
    )
    assert run.wait()["state"] == "completed"
    model = reference.run(reference.Settings(n_steps=1))
    expected = reference.Settings(n_steps=1, skipped=frozenset({"s0-p1-n0", "s0-p1-n1"}))
    assert run.prior(1) == reference.run(expected).priors[0]
    assert run.trials()["s0-p1-n1"]["reward"] == model.trials["s0-p1-n1"]["reward"]


def test_a_hung_trial_is_killed_counted_and_retried(cluster: Cluster) -> None:
    run = cluster.run(**QUICK, **SMALL, faults={"hang": [FIRST]}, timeouts={"trial_s": 1.0})
    assert run.wait()["state"] == "completed"
    (failed,) = run.events("TrialAttemptFailed")
    assert (failed["data"]["failure"], failed["data"]["subject"]) == ("timeout", FIRST)
    assert run.trials()[FIRST]["attempts"] == 2
    # The same try, not another: a timeout is no injected failure, so the draws begin anew.
    assert_model(run, reference.Settings(n_steps=1, n_samples=1))


def test_time_in_the_queue_does_not_count(cluster: Cluster) -> None:
    cluster.scale("sandbox", 2)
    # Twice as many as there are slots: the second half begins when the first has ended.
    slow = {f"s0-p{p}-n0": 2.0 for p in range(16)}
    run = cluster.run(
        **QUICK,
        n_steps=1,
        prompts_per_step=16,
        n_samples=1,
        faults={"straggler": slow},
        timeouts={"trial_s": 3.8},
    )
    assert run.wait()["state"] == "completed"
    assert run.events("TrialAttemptFailed") == []
    asked = {event["data"]["trial_id"]: at(event) for event in run.events("TrialRequested")}
    waits = [at(e) - asked[e["data"]["trial_id"]] for e in run.events("TrajectoryRecorded")]
    assert max(waits) > 3.8, "some waited longer in all than a try may take"


def test_a_straggler_holds_up_nothing_but_itself(cluster: Cluster) -> None:
    run = cluster.run(**QUICK, n_steps=1, faults={"straggler": {FIRST: 3.0}})
    assert run.wait()["state"] == "completed"
    ends = {event["data"]["trial_id"]: at(event) for event in run.events("Judged")}
    (slow,) = (at(e) for e in run.events("TrajectoryRecorded") if e["data"]["trial_id"] == FIRST)
    assert len(ends) == 6
    assert all(end < slow for trial, end in ends.items() if trial != FIRST)


def test_stragglers_are_cut_off_after_their_grace(cluster: Cluster) -> None:
    run = cluster.run(
        **QUICK,
        n_steps=1,
        faults={"straggler": {FIRST: 60.0}},
        group_policy={"straggler": {"after_fraction": 0.8, "grace_s": 0.5}},
    )
    assert run.wait(timeout_s=30)["state"] == "completed"
    assert run.trials()[FIRST]["state"] == "skipped"
    (skip,) = run.events("TrialSkipped")
    assert skip["data"]["reason"] == "straggler"
    assert_model(run, reference.Settings(n_steps=1, skipped=frozenset({FIRST})))


def test_the_steps_deadline_ends_a_step(cluster: Cluster) -> None:
    run = cluster.run(
        **QUICK, n_steps=1, faults={"straggler": {FIRST: 60.0}}, timeouts={"step_s": 3.0}
    )
    assert run.wait(timeout_s=30)["state"] == "completed"
    (skip,) = run.events("TrialSkipped")
    first = min(at(event) for event in run.events("TrialRequested"))
    assert skip["data"]["reason"] == "step_deadline" and at(skip) - first >= 3.0


def test_pausing_stops_new_work_and_resuming_goes_on(cluster: Cluster) -> None:
    run = cluster.run(tool_latency_s=0.1, judge_latency_s=0.1)
    run.wait_for("StepApplied", step=0)
    assert run.post("pause")["state"] == "paused"
    assert run.post("pause")["state"] == "paused", "asking twice is asking once"
    assert run.post("resume")["state"] == "running"
    assert run.wait()["state"] == "completed"
    assert_model(run, reference.Settings())


def test_cancelling_ends_every_open_trial(cluster: Cluster) -> None:
    run = cluster.run(tool_latency_s=0.2, judge_latency_s=0.2)
    run.wait_for("TrialRequested")
    assert run.post("cancel")["state"] == "cancelled"
    requested = set(run.slots("TrialRequested"))
    run.wait_for("TrialCancelled")
    trials = run.trials()
    assert set(trials) == requested
    assert {t["state"] for t in trials.values()} <= {"judged", "skipped", "cancelled"}
