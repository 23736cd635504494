"""Budgets on every real service: a run stops at its limit, loses nothing, and goes on with more."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from support import reference
from support.cluster import QUICK, Cluster, RunSeen
from support.verdicts import FAULTS, assert_golden, assert_model, assert_once
from support.waiting import until

# A reply is 16 tokens long: what a call may cost at worst is not far above what it does cost.
SHORT = {"max_tokens": 16}


def resume(run: RunSeen, **budget: Any) -> Any:
    return run.post("resume", {"budget": budget})


def made(cluster: Cluster, before: Counter[str]) -> Counter[str]:
    """Return the calls since then, by the judge's own count."""
    return cluster.judge_calls() - before


def spent(run: RunSeen) -> dict[str, Any]:
    return run.get()["budget"]["spent"]


def paid(run: RunSeen) -> list[tuple[int, int]]:
    """Return tokens and millionths of every recorded call, in order."""
    calls = [event["data"] for event in run.events("JudgeCallRecorded")]
    return [(c["prompt_tokens"] + c["completion_tokens"], c["cost_microusd"]) for c in calls]


def test_a_run_pauses_at_its_calls_and_goes_on_to_the_golden_end(cluster: Cluster) -> None:
    before = cluster.judge_calls()
    run = cluster.run(budget={"judge_calls": 7})
    paused = run.wait("paused", "completed", "failed")
    assert paused["state"] == "paused"
    reason = "budget.judge_calls: 7 of 7 are spent; resume with a higher budget"
    assert paused["pause_reason"] == reason
    assert made(cluster, before).total() == 7 == len(run.events("JudgeCallRecorded"))
    assert paused["budget"]["limits"] == {"judge_calls": 7, "tokens": None, "usd": None}
    assert spent(run) == {
        "judge_calls": 7,
        "tokens": sum(tokens for tokens, _ in paid(run)),
        "usd": run.get()["cost"]["usd"],
    }
    assert resume(run, judge_calls=18)["state"] == "running"
    assert run.wait()["state"] == "completed"
    assert_golden(run, "clean")
    assert_once(run)
    calls = made(cluster, before)
    assert len(calls) == 18 and set(calls.values()) == {1}
    assert run.get()["pauses"] == 1, "exactly what was needed is enough"
    assert run.events("TrialAttemptFailed") == []
    assert spent(run)["judge_calls"] == 18


def test_the_same_limit_again_pauses_again_once(cluster: Cluster) -> None:
    before = cluster.judge_calls()
    run = cluster.run(**QUICK, n_steps=1, budget={"judge_calls": 2})
    first = run.wait("paused")
    for n in (1, 2):
        run.post("resume", None if n == 1 else {"budget": {"judge_calls": 2}})
        run.wait_for("RunPaused", n=n)
        assert run.wait("paused")["pause_reason"] == first["pause_reason"]
    assert [event["data"]["n"] for event in run.events("RunPaused")] == [0, 1, 2]
    assert made(cluster, before).total() == 2
    assert run.events("TrialAttemptFailed", "TrialSkipped") == []
    # In steps, to the end; each pause at exactly its limit.
    for limit in (3, 5):
        resume(run, judge_calls=limit)
        run.wait("paused")
        assert made(cluster, before).total() == limit == spent(run)["judge_calls"]
    resume(run, judge_calls=None)
    assert run.wait()["state"] == "completed"
    assert_model(run, reference.Settings(n_steps=1))
    assert made(cluster, before).total() == 6


@pytest.mark.parametrize("unit", ["tokens", "usd"])
def test_tokens_and_money_are_never_exceeded(cluster: Cluster, unit: str) -> None:
    before = cluster.judge_calls()
    limit = {"tokens": 900, "usd": 0.0045}[unit]
    run = cluster.run(tool_latency_s=0, judge_latency_s=0.1, judge=SHORT, budget={unit: limit})
    paused = run.wait("paused", "completed", "failed")
    assert paused["state"] == "paused" and f"budget.{unit}: " in paused["pause_reason"]
    # What was out when the run paused is still recorded.
    until(lambda: run.get()["cost"]["calls_unrecorded"] == 0)
    tokens, money = (sum(column) for column in zip(*paid(run), strict=True))
    counted = {"tokens": tokens, "usd": money / 1_000_000}
    assert 0 < counted[unit] <= limit
    assert spent(run) == {"judge_calls": len(paid(run)), **counted}
    assert made(cluster, before).total() == len(paid(run)) > 2
    resume(run, **{unit: None, "judge_calls": 18})
    assert run.wait()["state"] == "completed"
    assert_golden(run, "clean")
    calls = made(cluster, before)
    assert len(calls) == 18 and set(calls.values()) == {1}


def test_flakes_and_pauses_together_end_golden(cluster: Cluster) -> None:
    before = cluster.judge_calls()
    run = cluster.run(**QUICK, faults=FAULTS, budget={"judge_calls": 4})
    for limit in (9, 13, 18):
        assert run.wait("paused", "completed", "failed")["state"] == "paused"
        resume(run, judge_calls=limit)
    assert run.wait()["state"] == "completed"
    assert_golden(run, "injected")
    calls = made(cluster, before)
    assert len(calls) == 18 and set(calls.values()) == {1}


def test_a_pause_longer_than_a_judgment_may_take_uses_no_retry(cluster: Cluster) -> None:
    """Judgments are in hand as it comes, each with a call out and one yet to make."""
    criteria = [{"name": "a", "prompt": f"{time.time_ns()}"}, {"name": "b", "prompt": "b"}]
    run = cluster.run(
        tool_latency_s=0,
        judge_latency_s=0.4,
        n_steps=1,
        rubric={"name": "two", "scoring": "per_criterion", "criteria": criteria},
        timeouts={"judge_s": 3.0},  # two calls, and room for a busy machine
        retries={"judge": 0},
    )
    run.wait_for("JudgeCallStarted")
    run.post("pause")
    paused_at = time.monotonic()
    until(lambda: run.get()["cost"]["calls_unrecorded"] == 0)
    recorded = len(run.events("JudgeCallRecorded"))
    assert recorded > 0, "what was out is on the log"
    until(lambda: time.monotonic() - paused_at > 4.5)
    assert run.events("Judged", "TrialAttemptFailed", "TrialSkipped") == []
    assert len(run.events("JudgeCallRecorded")) == recorded
    run.post("resume")
    assert run.wait()["state"] == "completed"
    assert len(run.events("Judged")) == 6
    assert run.events("TrialAttemptFailed", "TrialSkipped", "TrialRetryScheduled") == []
    assert set(run.slots("JudgeCallStarted", "call_key").values()) == {1}


def test_a_judge_that_dies_with_calls_out_never_overdraws_the_budget(cluster: Cluster) -> None:
    cluster.scale("judge", 2)
    before = cluster.judge_calls()
    run = cluster.run(tool_latency_s=0, judge_latency_s=1.0, n_steps=1, budget={"judge_calls": 6})
    run.wait_for("JudgeCallStarted")
    cluster.kill_and_wait("judge-1")
    ended = run.wait("paused", "completed", "failed")
    calls = made(cluster, before).total()
    assert calls <= spent(run)["judge_calls"] <= 6
    if ended["state"] == "paused":
        # What was out at the death may have been billed: it counts, and more is needed.
        assert spent(run)["judge_calls"] == 6 > len(run.events("JudgeCallRecorded"))
        resume(run, judge_calls=20)
    assert run.wait()["state"] == "completed"
    assert_once(run)
    assert_model(run, reference.Settings(n_steps=1))
    recorded, started = (len(run.events(f"JudgeCall{how}")) for how in ("Recorded", "Started"))
    assert recorded == 6 <= made(cluster, before).total() <= started
    assert made(cluster, before).total() <= spent(run)["judge_calls"]


def test_a_fork_has_the_budget_and_a_purse_of_its_own(cluster: Cluster) -> None:
    run = cluster.run(**QUICK, n_steps=1, budget={"judge_calls": 6})
    assert run.wait()["state"] == "completed"
    before = cluster.judge_calls()
    same = run.fork()
    assert same.wait()["state"] == "completed"
    assert spent(same)["judge_calls"] == 0 == made(cluster, before).total()
    other = run.fork({"rubric": "v2-efficiency"})
    assert other.wait()["state"] == "completed"
    assert spent(other)["judge_calls"] == 6 == made(cluster, before).total()
    assert spent(run)["judge_calls"] == 6
    fewer = run.fork({"rubric": "v2-efficiency", "lr": 1.0, "budget": {"judge_calls": 0}})
    assert fewer.wait()["state"] == "completed", "what its tree has made costs it nothing"
    assert fewer.get()["budget"]["limits"]["judge_calls"] == 0
    assert made(cluster, before).total() == 6
