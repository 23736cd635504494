"""The reference run on every real service: golden at any size and any number of replicas."""

from __future__ import annotations

from typing import Any

import pytest
from support import reference
from support.cluster import QUICK, Cluster
from support.verdicts import FAULTS, assert_golden, assert_model


def test_clean_run_is_golden(cluster: Cluster) -> None:
    before = cluster.judge_calls()
    run = cluster.run()
    assert run.wait()["state"] == "completed"
    assert_golden(run, "clean")
    calls = cluster.judge_calls() - before
    assert len(calls) == 18 and set(calls.values()) == {1}
    counts = run.get()["counts"]
    assert counts["executed"] == {
        "build_world": 3,
        "generate": 18,
        "verify": 18,
        "judge_call": 18,
        "judge": 18,
        "train_step": 3,
    }
    assert not any(counts["recovered"].values()) and not counts["skipped"]


@pytest.mark.parametrize("processes", [1, 4, 2])
def test_faulty_run_is_golden_at_any_replica_count(cluster: Cluster, processes: int) -> None:
    cluster.scale("sandbox", processes)
    cluster.scale("judge", processes)
    before = cluster.judge_calls()
    run = cluster.run(**QUICK, faults=FAULTS)
    assert run.wait()["state"] == "completed"
    assert_golden(run, "injected")
    calls = cluster.judge_calls() - before
    assert len(calls) == 18 and set(calls.values()) == {1}, "no retry calls the judge"


SIZES: list[dict[str, Any]] = [
    {"n_steps": 1, "n_worlds": 1, "prompts_per_step": 1, "n_samples": 1},
    {"n_steps": 2, "n_worlds": 5, "prompts_per_step": 7, "n_samples": 3, "max_turns": 3},
    {"n_steps": 2, "n_worlds": 2, "prompts_per_step": 11, "seed": 7, "rubric": "v2-efficiency"},
    {"n_steps": 4, "lr": 0.125, "seed": -1, "max_turns": 8},
]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "-".join(map(str, size.values())))
def test_other_sizes_agree_with_the_model(cluster: Cluster, size: dict[str, Any]) -> None:
    faults = {"flaky_trial_rate": 0.4, "judge_flake_rate": 0.5}
    run = cluster.run(**QUICK, **size, faults=faults)
    assert run.wait()["state"] == "completed"
    assert_model(run, reference.Settings(**size, flaky=0.4, judge_flake=0.5))


@pytest.mark.slow
def test_weights_are_equal_to_the_last_bit_at_102_trials_a_step(cluster: Cluster) -> None:
    size: dict[str, Any] = {
        "n_steps": 2,
        "n_worlds": 3,
        "prompts_per_step": 51,
        "n_samples": 2,
    }
    run = cluster.run(**QUICK, **size)
    assert run.wait(timeout_s=150)["state"] == "completed"
    assert_model(run, reference.Settings(**size))


def test_work_is_spread_over_both_sandboxes(cluster: Cluster) -> None:
    cluster.scale("sandbox", 2)
    run = cluster.run(tool_latency_s=0.05, judge_latency_s=0, prompts_per_step=8)
    assert run.wait()["state"] == "completed"
    workers = {event["data"].get("worker") for event in run.events("TrajectoryRecorded")}
    assert len(workers) == 2, "each says in its record who it was"
