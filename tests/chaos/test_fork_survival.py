"""Kill anything while runs are forked: forks come out the same, and pay for nothing twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from support import reference
from support.cluster import QUICK, Cluster, RunSeen
from support.verdicts import FAULTS, assert_golden, assert_model, assert_once

pytestmark = pytest.mark.slow
SLOW = {"tool_latency_s": 0.1, "judge_latency_s": 0.3}


def completed(cluster: Cluster, **settings: object) -> RunSeen:
    run = cluster.run(**settings)
    assert run.wait()["state"] == "completed"
    return run


def test_a_fork_survives_the_crash_that_it_asks_for(cluster: Cluster) -> None:
    parent = completed(cluster, **QUICK, faults=FAULTS)
    before = cluster.judge_calls()
    faults = {"crash_driver_after_step": 0}
    fork = parent.fork({"faults": faults}, rubric="v2-efficiency")
    assert fork.wait()["state"] == "completed"
    assert_golden(fork, "fork_v2")
    assert_once(fork)
    calls = cluster.judge_calls() - before
    assert len(calls) == 18 and set(calls.values()) == {1}
    # Whole steps are recovered up to the crash, and the rest after it.
    again = fork.fork({"faults": faults})
    seen = again.wait()
    assert seen["state"] == "completed" and not any(seen["counts"]["executed"].values())
    assert [fault["step"] for fault in seen["faults"]] == [0]


def kill_driver(cluster: Cluster) -> None:
    cluster.kill_and_wait("driver-1")


def wipe_nats(cluster: Cluster) -> None:
    cluster.call(cluster.stack.restart_infrastructure("nats", wipe=True))


def kill_judge(cluster: Cluster) -> None:
    cluster.kill_and_wait(cluster.running("judge")[0])


@pytest.mark.parametrize("strike", [kill_driver, wipe_nats, kill_judge])
def test_a_rescoring_that_is_struck_judges_each_trajectory_once(
    cluster: Cluster, strike: Callable[[Cluster], None]
) -> None:
    cluster.scale("judge", 2)
    parent = completed(cluster, **QUICK, n_steps=2)
    before = cluster.judge_calls()
    fork = parent.fork({"judge_latency_s": 0.3}, rubric="v2-efficiency", mode="rescore")
    fork.wait_for("JudgeCallStarted")
    strike(cluster)
    seen = fork.wait()
    assert seen["state"] == "completed"
    assert (seen["counts"]["executed"]["judge"], seen["counts"]["executed"]["generate"]) == (12, 0)
    assert fork.prior(2) == fork.prior(0), "nothing is trained"
    calls = cluster.judge_calls() - before
    started = fork.slots("JudgeCallStarted", "call_key")
    assert len(calls) == 12 and all(calls[key] <= started[key] for key in calls), "I4"
    cost = seen["cost"]
    assert cost["calls_unrecorded"] == sum(started.values()) - 12


@pytest.mark.parametrize("strike", [kill_driver, wipe_nats])
def test_parent_and_fork_that_are_struck_while_both_go_on(
    cluster: Cluster, strike: Callable[[Cluster], None]
) -> None:
    before = cluster.judge_calls()
    parent = cluster.run(**SLOW, n_steps=2, faults=FAULTS)
    parent.wait_for("StepApplied", step=0)
    fork, other = parent.fork(), parent.fork(rubric="v2-efficiency")
    strike(cluster)
    runs = (parent, fork, other)
    for run in runs:
        assert run.wait(timeout_s=150)["state"] == "completed"
    model = reference.Settings(n_steps=2, flaky=0.25, judge_flake=0.3)
    assert_model(parent, model)
    assert_model(fork, model)
    assert_model(other, dataclasses.replace(model, rubric="v2-efficiency"))
    calls = cluster.judge_calls() - before
    recorded = [
        event["data"]["call_key"]
        for run in runs
        for event in run.events("JudgeCallRecorded")
        if not event["data"].get("provenance")
    ]
    assert sorted(recorded) == sorted(calls), "one valid reply of each, whoever asked"
    assert set(calls.values()) == {1}, "no judge died: no call was made twice"
