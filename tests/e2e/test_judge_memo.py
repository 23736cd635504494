"""What forks pay the judge, by the judge's own count; and what a killed judge may cost."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from support.cluster import QUICK, Cluster, RunSeen
from support.verdicts import assert_once
from support.waiting import until

RIGHT: dict[str, Any] = {"name": "right", "check": "correct"}
STYLE: dict[str, Any] = {"name": "style", "weight": 0.5, "prompt": "Is it well written?"}
TIDY: dict[str, Any] = {"name": "tidiness", "weight": 0.25}
CRITERIA = [RIGHT, STYLE, TIDY]
ONE_STEP = {**QUICK, "n_steps": 1}


def rubric(*criteria: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"name": "mine", "scoring": "per_criterion", "criteria": list(criteria)} | changes


def fresh(text: str) -> str:
    """Return a prompt that no other tree of this session has asked about."""
    return f"{text} ({time.time_ns()})"


def whole(name: str, tidiness: float = 0.1) -> dict[str, Any]:
    weights = {"correct": 1.0, "efficiency": 0.3, "tidiness": tidiness}
    criteria = [{"name": each, "weight": weight} for each, weight in weights.items()]
    return {"name": name, "scoring": "holistic", "criteria": criteria}


def completed(run: RunSeen) -> RunSeen:
    assert run.wait()["state"] == "completed"
    return run


def distinct(run: RunSeen) -> int:
    """Return how many different trajectories a run has: twins share their criteria's calls."""
    return len({event["data"]["digest"] for event in run.events("TrajectoryRecorded")})


@pytest.fixture(scope="module")
def single(cluster: Cluster) -> RunSeen:
    """A run judged criterion by criterion."""
    return completed(cluster.run(**ONE_STEP, rubric=rubric(*CRITERIA)))


@pytest.fixture(scope="module")
def holistic(cluster: Cluster) -> RunSeen:
    """A run judged in one call a trial."""
    return completed(cluster.run(**ONE_STEP, rubric=whole("one")))


@pytest.mark.parametrize(
    ("criteria", "calls_a_trajectory"),
    [
        ([RIGHT, STYLE | {"weight": 2.0}, TIDY | {"weight": 0.0}], 0),
        ([RIGHT, STYLE | {"prompt": fresh("Good?")}, TIDY], 1),
        ([RIGHT, STYLE, TIDY, {"name": "manners", "prompt": fresh("Polite?")}], 1),
        ([STYLE], 0),
        ([TIDY, STYLE, RIGHT], 0),
    ],
    ids=["weights", "text", "added", "removed", "reordered"],
)
def test_a_fork_pays_for_what_changed_in_its_rubric(
    cluster: Cluster,
    single: RunSeen,
    criteria: list[dict[str, Any]],
    calls_a_trajectory: int,
) -> None:
    before = cluster.judge_calls()
    fork = completed(single.fork({"rubric": rubric(*criteria)}))
    calls = cluster.judge_calls() - before
    wanted = calls_a_trajectory * distinct(single)
    assert len(calls) == wanted and set(calls.values()) <= {1}
    seen = fork.get()
    assert seen["counts"]["executed"]["generate"] == 0
    assert seen["counts"]["executed"]["judge"] == 6
    assert seen["counts"]["executed"]["judge_call"] == seen["cost"]["judge_calls"] == wanted
    assert seen["cost"]["saved_by_recovery"]["judge_calls"] == 0
    assert_cost(fork)


@pytest.mark.parametrize(
    ("changes", "all_again"),
    [({"rubric": rubric(*CRITERIA, name="ours")}, False), ({"judge": {"model": "other-1"}}, True)],
    ids=["renamed", "model"],
)
def test_a_name_costs_nothing_by_criterion_and_another_model_costs_all(
    cluster: Cluster, single: RunSeen, changes: dict[str, Any], all_again: bool
) -> None:
    before = cluster.judge_calls()
    fork = completed(single.fork(changes))
    calls = cluster.judge_calls() - before
    # Two criteria are asked for; an earlier run of this session may have asked the other model.
    assert calls.total() == (2 * distinct(single) if all_again else 0)
    assert fork.get()["counts"]["executed"]["judge_call"] == calls.total()
    assert_cost(fork)


@pytest.mark.parametrize(
    ("changes", "calls"),
    [
        ({}, 0),
        ({"rubric": whole("two")}, 6),
        ({"rubric": whole("one", tidiness=0.2)}, 6),
        ({"judge": {"temperature": 0.7}}, 6),
    ],
    ids=["same", "renamed", "weights", "sampling"],
)
def test_a_whole_rubric_is_asked_whole(
    cluster: Cluster, holistic: RunSeen, changes: dict[str, Any], calls: int
) -> None:
    before = cluster.judge_calls()
    fork = completed(holistic.fork(changes))
    assert (cluster.judge_calls() - before).total() == calls
    assert_cost(fork)
    cost, parent = fork.get()["cost"], holistic.get()["cost"]
    if not calls:
        paid = {key: parent[key] for key in cost["saved_by_recovery"]}
        assert cost["saved_by_recovery"] == paid, "all that its parent paid for"


def test_a_retry_after_a_flake_is_saved_by_the_memo(cluster: Cluster) -> None:
    before = cluster.judge_calls()
    run = completed(cluster.run(**ONE_STEP, rubric=whole("f"), faults={"judge_flake_rate": 1}))
    assert (cluster.judge_calls() - before).total() == 6
    cost = run.get()["cost"]
    assert cost["saved_by_memo"] == {key: cost[key] for key in cost["saved_by_memo"]}
    assert_cost(run)


def test_two_forks_started_together_make_no_call_twice(cluster: Cluster, single: RunSeen) -> None:
    before = cluster.judge_calls()
    asked = {
        "rubric": rubric(*CRITERIA, {"name": "manners", "prompt": fresh("Polite?")}),
        "judge_latency_s": 0.3,
    }
    forks = [single.fork(asked), single.fork(asked), single.fork(asked)]
    for fork in forks:
        completed(fork)
    calls = cluster.judge_calls() - before
    assert len(calls) == distinct(single) and set(calls.values()) == {1}
    costs = [fork.get()["cost"] for fork in forks]
    assert sum(cost["judge_calls"] for cost in costs) == calls.total()
    assert not any(cost["calls_unrecorded"] for cost in costs)
    assert_provenance(single, *forks)


def test_a_parent_and_its_forks_running_at_once_make_no_call_twice(cluster: Cluster) -> None:
    before = cluster.judge_calls()
    asked = rubric(RIGHT, STYLE | {"prompt": fresh("Well written?")}, TIDY)
    parent = cluster.run(n_steps=2, tool_latency_s=0.05, judge_latency_s=0.4, rubric=asked)
    parent.wait_for("JudgeCallStarted")
    fork = parent.fork({"n_steps": 2})
    fork.wait_for("TrialVerified")
    grandchild = fork.fork({"labels": {"generation": "third"}})
    runs = [parent, fork, grandchild]
    for run in runs:
        completed(run)
    assert parent.prior(2) == fork.prior(2) == grandchild.prior(2)
    calls = cluster.judge_calls() - before
    assert set(calls.values()) == {1}
    assert sum(run.get()["cost"]["judge_calls"] for run in runs) == calls.total()
    assert_provenance(*runs)
    for run in runs:
        assert_cost(run)


def test_calls_that_were_out_when_a_run_was_cancelled_serve_its_fork(cluster: Cluster) -> None:
    before = cluster.judge_calls()
    run = cluster.run(tool_latency_s=0, judge_latency_s=1.0, n_steps=1, rubric=whole("cut"))
    until(lambda: cluster.judge_calls() - before)
    assert run.post("cancel")["state"] == "cancelled"
    until(lambda: not run.get()["cost"]["calls_unrecorded"])
    paid = run.get()["cost"]["judge_calls"]
    assert paid == (cluster.judge_calls() - before).total() > 0
    (end,) = run.events("RunCancelled")
    assert any(e["position"] > end["position"] for e in run.events("JudgeCallRecorded"))
    fork = completed(run.fork(QUICK))
    calls = cluster.judge_calls() - before
    assert len(calls) == 6 and set(calls.values()) == {1}
    cost = fork.get()["cost"]
    assert (cost["judge_calls"], cost["saved_by_memo"]["judge_calls"]) == (6 - paid, paid)
    assert_cost(fork)


@pytest.mark.slow
def test_what_a_killed_judge_paid_without_a_record_is_the_only_repeat_and_shows(
    cluster: Cluster,
) -> None:
    cluster.scale("judge", 1)
    try:
        before = cluster.judge_calls()
        run = cluster.run(tool_latency_s=0, judge_latency_s=1.5, n_steps=1, rubric=whole("killed"))
        until(lambda: cluster.judge_calls() - before)
        assert run.get()["cost"]["calls_unrecorded"] >= 1, "in flight"
        cluster.kill_and_wait(cluster.running("judge")[0])
        completed(run)
    finally:
        cluster.scale("judge", 2)
    assert_once(run)
    calls = cluster.judge_calls() - before
    started = run.slots("JudgeCallStarted", "call_key")
    recorded = run.slots("JudgeCallRecorded", "call_key")
    repeats = {key: count - 1 for key, count in calls.items() if count > 1}
    assert repeats and set(recorded.values()) == {1} and set(recorded) == set(calls)
    assert all(calls[key] <= started[key] for key in calls), "I4"
    cost = run.get()["cost"]
    assert cost["calls_unrecorded"] == started.total() - recorded.total()
    assert sum(repeats.values()) <= cost["calls_unrecorded"]
    assert cost["judge_calls"] == 6, "what is billed is what is on the log"
    fork = completed(run.fork())
    assert fork.get()["cost"]["calls_unrecorded"] == 0, "it is the run's that made them"


def assert_cost(run: RunSeen) -> None:
    """What a run shows is the sum of its events."""
    made: Counter[str] = Counter()
    memo: Counter[str] = Counter()
    recovered: Counter[str] = Counter()
    for event in run.events("JudgeCallRecorded", "Judged", "StepApplied"):
        data = event["data"]
        if event["type"] == "JudgeCallRecorded":
            made.update({} if "provenance" in data else _bill(data | {"calls": 1}))
        elif event["type"] == "StepApplied":
            recovered.update(_bill(data["bill"]) if data.get("whole") else {})
        elif "provenance" in data:
            recovered.update(_bill(data.get("bill", {})))
        else:
            memo.update(_bill(data.get("memo", {})))
    started = len(run.events("JudgeCallStarted"))
    cost = run.get()["cost"]
    for sums, shown in (
        (made, cost),
        (memo, cost["saved_by_memo"]),
        (recovered, cost["saved_by_recovery"]),
    ):
        assert shown["judge_calls"] == sums["calls"]
        assert shown["prompt_tokens"] == sums["prompt_tokens"]
        assert shown["completion_tokens"] == sums["completion_tokens"]
        assert shown["usd"] == sums["cost_microusd"] / 1_000_000
    assert cost["calls_started"] == started == cost["judge_calls"] + cost["calls_unrecorded"]


def _bill(data: dict[str, Any]) -> dict[str, int]:
    keys = ("calls", "prompt_tokens", "completion_tokens", "cost_microusd")
    return {key: data.get(key, 0) for key in keys}


def assert_provenance(*runs: RunSeen) -> None:
    """A call that a run did not make names the run that did, and where that stands."""
    events = [event for run in runs for event in run.events("JudgeCallRecorded")]
    paid = {
        (event["run_id"], event["position"]): event["data"]
        for event in events
        if "provenance" not in event["data"]
    }
    for event in events:
        if (source := event["data"].get("provenance")) is not None:
            made = paid[source["run_id"], source["position"]]
            assert made["call_key"] == event["data"]["call_key"]
            assert (made["reply"], made["score"]) == (
                event["data"]["reply"],
                event["data"]["score"],
            )
    keys = [data["call_key"] for data in paid.values()]
    assert len(set(keys)) == len(keys), "paid once in the tree"
