"""Forks on every real service: only what changed is executed, and the rest is what it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from support import golden, reference
from support.cluster import QUICK, Cluster, RunSeen, at
from support.verdicts import FAULTS, assert_golden, assert_model

NOTHING = dict.fromkeys(
    ["build_world", "generate", "verify", "judge_call", "judge", "train_step"], 0
)


@pytest.fixture(scope="module")
def injected(cluster: Cluster) -> Generator[RunSeen]:
    """The golden run with faults, completed."""
    run = cluster.run(**QUICK, faults=FAULTS)
    assert run.wait()["state"] == "completed"
    yield run


def blobs(run: RunSeen) -> dict[str, str]:
    return {
        event["data"]["trial_id"]: event["data"]["blob"]
        for event in run.events("TrajectoryRecorded")
    }


def test_the_golden_fork_executes_what_the_rubric_changes(
    cluster: Cluster, injected: RunSeen
) -> None:
    before = cluster.judge_calls()
    fork = injected.fork(rubric="v2-efficiency")
    assert fork.wait()["state"] == "completed"
    assert_golden(fork, "fork_v2")
    counts = fork.get()["counts"]
    assert counts["executed"] == {
        "build_world": 0,
        "generate": 12,
        "verify": 1,
        "judge_call": 18,
        "judge": 18,
        "train_step": 3,
    }
    # Of the trajectories that are made anew, all but s2-p0-n1 come out as they were.
    assert counts["recovered"] == NOTHING | {"build_world": 3, "generate": 6, "verify": 17}
    checked = [e["data"] for e in fork.events("TrialVerified") if not e["data"].get("provenance")]
    assert [data["trial_id"] for data in checked] == ["s2-p0-n1"]
    calls = cluster.judge_calls() - before
    assert len(calls) == 18 and set(calls.values()) == {1}
    theirs, ours = blobs(injected), blobs(fork)
    first = [trial for trial in ours if trial.startswith("s0-")]
    assert len(first) == 6 and all(ours[trial] == theirs[trial] for trial in first)
    recovered = [
        event["data"]
        for event in fork.events("TrajectoryRecorded")
        if event["data"].get("provenance")
    ]
    assert {data["trial_id"] for data in recovered} == set(first)
    assert {data["provenance"]["run_id"] for data in recovered} == {injected.run_id}


def test_an_unchanged_fork_executes_nothing_at_all(cluster: Cluster, injected: RunSeen) -> None:
    before = cluster.judge_calls()
    fork = injected.fork()
    assert fork.wait()["state"] == "completed"
    assert fork.get()["counts"]["executed"] == NOTHING
    assert cluster.judge_calls() == before
    asked, ended = fork.events("RunRequested")[0], fork.events("RunCompleted")[0]
    assert at(ended) - at(asked) < 1.0
    assert fork.prior(3) == injected.prior(3)
    assert_golden(fork, "injected", retried=False)
    again = fork.fork()
    assert again.wait()["counts"]["executed"] == NOTHING, "a fork of a fork finds it all too"
    sources = {
        event["data"]["provenance"]["run_id"] for event in again.events("Judged", "StepApplied")
    }
    assert sources == {injected.run_id}, "provenance names who paid"


def test_a_trial_of_a_whole_step_shows_the_events_of_the_run_that_judged_it(
    cluster: Cluster, injected: RunSeen
) -> None:
    """Not of the one that generated it, which may have judged it otherwise."""
    judged = injected.fork(rubric="instant")
    judged.wait()
    again = judged.fork()
    assert again.wait()["counts"]["executed"] == NOTHING
    seen = [
        cluster.http.get(f"/trials/{run.run_id}/s0-p0-n0").json()["events"]
        for run in (judged, again)
    ]
    assert seen[0] and seen[0] == seen[1]


def test_a_fork_inherits_the_faults_but_not_the_crash(cluster: Cluster, injected: RunSeen) -> None:
    run = cluster.run(**QUICK, n_steps=1, faults={**FAULTS, "crash_driver_after_step": 0})
    run.wait()
    fork = run.fork(rubric="v2-efficiency")
    seen = fork.wait()
    assert seen["spec"]["faults"]["crash_driver_after_step"] is None
    assert seen["spec"]["faults"]["judge_flake_rate"] == FAULTS["judge_flake_rate"]
    assert not seen["faults"] and seen["counts"]["retried"]["judge"] > 0


SIZES: list[dict[str, Any]] = [
    {"n_steps": 2, "n_worlds": 5, "prompts_per_step": 7, "n_samples": 3, "max_turns": 3},
    {"n_steps": 4, "seed": 11, "lr": 0.5},
]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "-".join(map(str, size.values())))
def test_forks_of_other_sizes_agree_with_the_model(cluster: Cluster, size: dict[str, Any]) -> None:
    faults = {"flaky_trial_rate": 0.4, "judge_flake_rate": 0.5}
    run = cluster.run(**QUICK, **size, faults=faults)
    assert run.wait()["state"] == "completed"
    fork = run.fork(rubric="v2-efficiency")
    assert fork.wait()["state"] == "completed"
    model = reference.Settings(**size, flaky=0.4, judge_flake=0.5, rubric="v2-efficiency")
    assert_model(fork, model)
    step = size.get("prompts_per_step", 3) * size.get("n_samples", 2)
    assert fork.get()["counts"]["recovered"]["generate"] == step


def test_training_goes_on_where_the_parent_ended(cluster: Cluster, injected: RunSeen) -> None:
    fork = injected.fork({"n_steps": 5})
    assert fork.wait()["state"] == "completed"
    executed = fork.get()["counts"]["executed"]
    assert (executed["generate"], executed["judge_call"], executed["train_step"]) == (12, 12, 2)
    assert_model(fork, reference.Settings(n_steps=5, flaky=0.25, judge_flake=0.3))


def test_steps_below_from_step_stand_where_an_input_changed(injected: RunSeen) -> None:
    fork = injected.fork({"from_step": 2, "lr": 1.0, "n_samples": 3})
    assert fork.wait()["state"] == "completed"
    counts = fork.get()["counts"]
    assert counts["recovered"]["train_step"] == 2 and counts["executed"]["train_step"] == 1
    assert counts["executed"]["generate"] == 3, "the third sample of each prompt is new"
    assert [fork.prior(version) for version in (1, 2)] == [injected.prior(v) for v in (1, 2)]
    assert fork.prior(3) != injected.prior(3)
    assert Counter(t["step"] for t in fork.trials().values()) == {0: 6, 1: 6, 2: 9}


def test_rescoring_judges_every_trajectory_and_trains_nothing(cluster: Cluster) -> None:
    run = cluster.run(**QUICK, faults=FAULTS)
    run.wait()
    before = cluster.judge_calls()
    fork = run.fork(rubric="v2-efficiency", mode="rescore")
    seen = fork.wait()
    assert seen["state"] == "completed"
    assert seen["counts"]["executed"] == NOTHING | {"judge": 18, "judge_call": 18}
    assert sum((cluster.judge_calls() - before).values()) == 18
    assert blobs(fork) == blobs(run)
    assert [step["trained"] for step in seen["steps"]] == [False] * 3
    expected = golden.RUNS["fork_v2"]["steps"][0]["mean_reward"]
    assert seen["steps"][0]["mean_reward"] == expected
    same = run.fork(mode="rescore")
    assert same.wait()["counts"]["executed"] == NOTHING, "the same rubric: nothing to judge"
    # What a rescoring paid for, a training fork finds: all but the one trajectory that differs.
    trained = run.fork(rubric="v2-efficiency")
    assert trained.wait()["counts"]["executed"]["judge_call"] == 1


def test_a_running_run_can_be_forked_and_shares_its_calls(cluster: Cluster) -> None:
    before = cluster.judge_calls()
    run = cluster.run(n_steps=2, tool_latency_s=0.02, judge_latency_s=0.3)
    run.wait_for("JudgeCallStarted")
    fork, twin = run.fork(), run.fork()
    for each in (run, fork, twin):
        assert each.wait()["state"] == "completed"
    calls = cluster.judge_calls() - before
    assert len(calls) == 12 and set(calls.values()) == {1}, "three runs, one call each"
    assert fork.prior(2) == run.prior(2) == twin.prior(2)


def test_paused_and_cancelled_runs_can_be_forked(cluster: Cluster) -> None:
    run = cluster.run(n_steps=2, tool_latency_s=0.05, judge_latency_s=0)
    run.wait_for("StepApplied")
    run.post("pause")
    paused = run.fork()
    run.post("cancel")
    cancelled = run.fork()
    for fork in (paused, cancelled):
        seen = fork.wait()
        assert seen["state"] == "completed" and seen["counts"]["recovered"]["train_step"] == 1
        assert_model(fork, reference.Settings(n_steps=2))
