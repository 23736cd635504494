"""The demo's claims: all hold over good facts, and each fails when what it claims is not so."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.demo_changes import (
    Change,
    chain,
    cost,
    counted,
    event,
    executed,
    exits,
    forked,
    given,
    judge,
    later,
    means,
    planned,
    replayed,
    run,
    saved,
    slow_fork,
    slow_forks,
    slow_recovery,
    trial,
    uncounted,
    unmade,
    weights,
    without,
)
from support.demo_facts import make_facts
from trialog.cli.claims import CLAIMS, check, crash, figures, forks, results, work
from trialog.cli.facts import Facts, load_golden
from trialog.cli.fork_facts import Forks

GOLDEN = Path(__file__).parents[2] / "golden" / "seed-run.json"


def test_the_shipped_golden_numbers_are_the_golden_numbers():
    golden = json.loads(GOLDEN.read_text())
    assert load_golden() == golden["injected"]
    assert load_golden("fork_v2") == golden["fork_v2"]


def test_every_claim_holds_over_good_facts():
    rows = check(make_facts())
    assert [row.claim for row in rows if not row.ok] == []
    assert len({row.claim for row in rows}) == len(CLAIMS)
    good = figures(make_facts())
    assert good["judge_calls"] == 18
    assert good["generate_retries"] == good["judge_retries"] == 6
    assert good["recovery_s"] == 0.05
    assert good["replay_ms_per_step"] == pytest.approx(0.75)
    assert good["cost_usd"] == 0.022212


BROKEN: list[tuple[Callable[[Facts], Any], Change]] = [
    (results.completed, run(state="failed")),
    (results.all_judged, without("Judged", 3)),
    (results.all_judged, without("TrialRequested", 3)),
    (results.all_judged, later("Judged", 3)),
    (results.all_judged, event("Judged", 3, trial_id="s0-p0-n0")),
    (results.golden_turns, trial("s1-p0-n0", turns=[{"doc": 2, "found": False}])),
    (results.golden_turns, trial("s1-p0-n0", answer="")),
    (results.golden_turns, trial("s1-p0-n0", world_id="w1")),
    (results.golden_turns, given(trials={})),
    (results.golden_files, trial("s0-p2-n1", files_written=["scratch.tmp", "answer.txt"])),
    (results.golden_rewards, trial("s2-p2-n1", reward=0.0)),
    (results.golden_rewards, trial("s2-p2-n1", reward=None)),
    (results.golden_rewards, trial("s2-p2-n1", judge_score=1.0)),
    (results.golden_rewards, trial("s2-p2-n1", found_doc=None)),
    (results.golden_means, run(steps=[])),
    (results.golden_means, run(steps=[{"step": 0, "mean_reward": 1.6, "mean_turns": 3.83}])),
    (results.golden_weights, weights(2, "w0", 1, 5.0)),
    (results.golden_weights, weights(3, "w2", 7, 1.001)),
    (results.golden_weights, given(weights={})),
    (work.judge_called_once, judge(19)),
    (work.judge_called_once, judge(19, extra=1)),
    (work.judge_called_once, judge(18, **{"call-s0-p0-n0": 2})),
    (work.judge_called_once, given(judge={})),
    (work.judge_called_once, without("JudgeCallRecorded", 2)),
    (work.judge_called_once, later("JudgeCallStarted", 2)),
    (work.no_call_on_retry, later("JudgeCallRecorded", 0, ordinal=1)),
    (work.no_call_on_retry, later("JudgeCallStarted", 0, fence=2)),
    (work.no_call_on_retry, given(events=())),
    (work.bill, cost(usd=0.022213)),
    (work.bill, cost(usd=0.02)),
    (work.bill, cost(judge_calls=19)),
    (work.bill, event("JudgeCallRecorded", 5, cost_microusd=1235)),
    (work.bill, later("JudgeCallRecorded", 5, ordinal=1)),
    (work.bill, without("JudgeCallRecorded", 5)),
    (work.account, executed("judge_call", 19)),
    (work.account, executed("train_step", 2)),
    (work.account, executed("dance", 0)),
    (work.generate_retries, event("TrialAttemptFailed", 2, subject="s0-p0-n1")),
    (work.generate_retries, later("TrialRetryScheduled", 2)),
    (work.judge_retries, event("TrialAttemptFailed", 0, injected=False)),
    (work.judge_retries, without("TrialRetryScheduled", 0)),
    (work.one_actor, event("StepApplied", 2, pid=43)),
    (work.one_actor, event("StepApplied", 2, actor="actor-2")),
    (work.one_actor, later("StepApplied", 2)),
    (work.one_actor, without("StepApplied", 2)),
    (work.steps_chain, event("StepApplied", 2, prior_digest="other")),
    (work.steps_chain, later("StepApplied", 2)),
    (work.worlds_built_once, later("WorldBuilt", 0)),
    (work.worlds_built_once, without("WorldBuilt", 0)),
    (work.worlds_built_once, executed("build_world", 4)),
    (work.fork_time, slow_forks),
    (work.fork_time, given(sandboxes={"sandbox-1": []})),
    (work.work_spread, slow_forks),
    (work.work_spread, given(sandboxes={})),
    (crash.driver_killed, exits()),
    (crash.driver_killed, exits(-15)),
    (crash.driver_killed, exits(-9, -9)),
    (crash.driver_killed, given(restarts={"driver-1": 0})),
    (crash.driver_killed, given(restarts={"driver-1": 2})),
    (crash.crash_announced, without("FaultInjected")),
    (crash.crash_announced, later("FaultInjected")),
    (crash.crash_announced, exits(-9, at_s=0)),
    (crash.crash_announced, exits()),
    (crash.crash_announced, later("StepApplied", 1)),
    (crash.nothing_again, later("TrialRequested", 0)),
    (crash.nothing_again, later("TrajectoryRecorded", 8)),
    (crash.nothing_again, later("JudgeCallStarted", 8)),
    (crash.nothing_again, later("StepApplied", 1)),
    (crash.nothing_again, event("TrialAttemptFailed", 0, failure="lost")),
    (crash.nothing_again, executed("generate", 19)),
    (crash.nothing_again, without("FaultInjected")),
    (crash.recovery, slow_recovery),
    (crash.recovery, without("FaultInjected")),
    (crash.replay, replayed(0.0021, 2)),
    (crash.replay, replayed(0.0001, 1)),
    (crash.replay, replayed(0.0001, 4)),
    (crash.replay, given(drivers={})),
    (crash.replay, given(drivers={"driver-1": []})),
    (forks.golden_trials, unmade("changed")),
    (forks.golden_trials, forked("changed", trial("s1-p0-n0", turns=[]))),
    (forks.golden_trials, forked("changed", trial("s0-p0-n0", reward=0.0))),
    (forks.golden_means, unmade("changed")),
    (forks.golden_means, means("changed", 2.412, 3.362, 3.365)),
    (forks.golden_weights, unmade("changed")),
    (forks.golden_weights, forked("changed", weights(3, "w2", 7, 1.001))),
    (forks.recovered, unmade("changed")),
    (forks.recovered, forked("changed", event("TrajectoryRecorded", 0, blob="other"))),
    (forks.recovered, forked("changed", event("TrajectoryRecorded", 0, provenance=None))),
    (forks.recovered, forked("changed", event("WorldBuilt", 0, digest="other"))),
    (forks.executed, unmade("changed")),
    (forks.executed, forked("changed", executed("judge_call", 19))),
    (forks.executed, forked("changed", executed("build_world", 1))),
    (forks.executed, forked("changed", run(state="failed"))),
    (forks.first_step, means("changed", 2.411, 3.362, 3.364)),
    (forks.first_step, forked("changed", without("JudgeCallRecorded"))),
    (forks.first_step, forked("changed", event("TrajectoryRecorded", 0, provenance=None))),
    (forks.judge_count, uncounted("changed")),
    (forks.judge_count, counted("changed", *(str(n) for n in range(18)))),
    (forks.judge_count, forked("changed", without("JudgeCallRecorded"))),
    (forks.planned, unmade("changed")),
    (forks.planned, lambda facts: replace(facts, forks=replace(facts.forks, plan=None))),
    (forks.planned, planned("judge_call", executed=5, unknown=12)),
    (forks.planned, planned("train_step", executed=4)),
    (forks.planned, planned("generate", recovered=7)),
    (forks.planned, forked("changed", lambda fork: replace(fork, events=fork.events[1:]))),
    (forks.unchanged, unmade("unchanged")),
    (forks.unchanged, forked("unchanged", executed("train_step", 1))),
    (forks.unchanged, counted("unchanged", "one")),
    (forks.unchanged, uncounted("unchanged")),
    (forks.unchanged, forked("unchanged", given(weights={}))),
    (forks.unchanged, forked("unchanged", trial("s2-p0-n0", reward=0.0))),
    (forks.unchanged_at_once, unmade("unchanged")),
    (forks.unchanged_at_once, forked("unchanged", slow_fork)),
    (forks.rescored, unmade("rescored")),
    (forks.rescored, counted("rescored", "one", "two")),
    (forks.rescored, forked("rescored", executed("generate", 1))),
    (forks.rescored, forked("rescored", event("TrajectoryRecorded", 5, blob="other"))),
    (forks.reweighted, unmade("reweighted")),
    (forks.reweighted, unmade("by_criterion")),
    (forks.reweighted, counted("reweighted", "one")),
    (forks.reweighted, uncounted("reweighted")),
    (forks.reweighted, forked("reweighted", executed("judge_call", 1))),
    (forks.reweighted, forked("reweighted", trial("s0-p0-n0", scores={}))),
    (forks.bill, unmade("rescored")),
    (forks.bill, saved("changed", 0.005999)),
    (forks.bill, uncounted("changed")),
    (forks.bill, forked("unchanged", event("StepApplied", 0, bill={}))),
    (crash.chain_verifies, chain(7, 10_000)),
    (crash.chain_verifies, chain(None, 20)),
    (crash.chain_verifies, chain(None, 200)),
    (crash.positions_contiguous, without("Judged", 5)),
    (crash.positions_contiguous, given(events=())),
    (crash.in_time, given(total_s=60.1)),
]


@pytest.mark.parametrize(("claim", "change"), BROKEN)
def test_a_claim_that_is_not_so_fails(claim: Callable[[Facts], Any], change: Change):
    assert claim(make_facts()).ok
    row = claim(change(make_facts()))
    assert not row.ok, row
    assert row.measured


def test_every_claim_is_seen_to_fail():
    assert {claim for claim, _ in BROKEN} == set(CLAIMS)


def test_no_claim_holds_over_nothing():
    nothing = make_facts(
        run={
            "state": "running",
            "steps": [],
            "counts": {"executed": {}},
            "cost": {"judge_calls": 0, "usd": 0.0},
        },
        chain={"broken_at": None, "checked_until": 0},
        drivers={},
        trials={},
        weights={},
        events=(),
        judge={},
        exits=(),
        restarts={},
        sandboxes={},
        total_s=61.0,
        forks=Forks(),
    )
    assert [row.claim for row in check(nothing) if row.ok] == []
    assert figures(nothing)["recovery_s"] is None


def test_the_standby_has_half_the_time():
    def took(seconds: float) -> Change:
        def change(facts: Facts) -> Facts:
            events: list[Any] = []
            crashed = facts.crash()
            for one in facts.events:
                if crashed and one["position"] > crashed["position"]:
                    at = facts.crash_time() + timedelta(seconds=seconds)
                    events.append({**one, "recorded_at": at.isoformat()})
                else:
                    events.append(one)
            return replace(facts, events=tuple(events))

        return change

    facts = took(1.5)(make_facts())
    assert crash.recovery(facts).ok
    assert not crash.recovery(replace(facts, standby=True)).ok


def test_a_standby_has_no_replay_to_time() -> None:
    told = [row.claim for row in check(make_facts(standby=True))]
    cold = [row.claim for row in check(make_facts())]
    assert len(cold) == len(told) + 1
    assert [claim for claim in cold if claim.startswith("Replay")]
    assert not [claim for claim in told if claim.startswith("Replay")]
