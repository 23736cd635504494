"""The demo's claims: all hold over good facts, and each fails when what it claims is not so."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.demo_facts import START, make_facts, replay
from trialog.cli.claims import CLAIMS, check, crash, figures, results, work
from trialog.cli.facts import Exit, Facts, load_golden
from trialog.cli.metrics import Sample

Change = Callable[[Facts], Facts]
GOLDEN = Path(__file__).parents[2] / "golden" / "seed-run.json"


def test_the_shipped_golden_numbers_are_the_golden_numbers():
    assert load_golden() == json.loads(GOLDEN.read_text())["injected"]


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


def trial(name: str, **changes: Any) -> Change:
    """One trial is otherwise."""

    def change(facts: Facts) -> Facts:
        trials: dict[str, Any] = {**facts.trials}
        trials[name] = trials[name] | changes
        return replace(facts, trials=trials)

    return change


def event(type_: str, index: int = 0, **changes: Any) -> Change:
    """The data of one event of a type is otherwise."""

    def change(facts: Facts) -> Facts:
        wanted = list(facts.of_type(type_))[index]
        changed: Any = {**wanted, "data": {**wanted["data"], **changes}}
        return replace(facts, events=tuple(changed if e is wanted else e for e in facts.events))

    return change


def without(type_: str, index: int = 0) -> Change:
    """One event of a type is missing."""

    def change(facts: Facts) -> Facts:
        gone = list(facts.of_type(type_))[index]
        return replace(facts, events=tuple(e for e in facts.events if e is not gone))

    return change


def later(type_: str, index: int = 0, *, delay_s: float = 0.0, **changes: Any) -> Change:
    """A copy of an event of a type is recorded again before the run's end."""

    def change(facts: Facts) -> Facts:
        like, last = list(facts.of_type(type_))[index], facts.events[-1]
        data = {**like["data"], **changes}
        again: Any = {**like, "data": data, "position": last["position"]}
        end: Any = {**last, "position": last["position"] + 1}
        return replace(facts, events=(*facts.events[:-1], again, end))

    return change


def run(**changes: Any) -> Change:
    """The run, as the API shows it, is otherwise."""
    return lambda facts: replace(facts, run={**facts.run, **changes})  # type: ignore[arg-type]


def given(**changes: Any) -> Change:
    """A whole field of the facts is otherwise."""
    return lambda facts: replace(facts, **changes)


def executed(kind: str, count: int) -> Change:
    """The count of an executed action is otherwise."""

    def change(facts: Facts) -> Facts:
        counts: Any = {**facts.run["counts"]}
        counts["executed"] = {**counts["executed"], kind: count}
        return run(counts=counts)(facts)

    return change


def judge(calls: int, **extra_keys: int) -> Change:
    """The judge counted otherwise."""
    return lambda facts: replace(
        facts, judge={"calls": calls, "by_key": {**facts.judge["by_key"], **extra_keys}}
    )


def cost(**changes: Any) -> Change:
    """The run's bill is otherwise."""
    return lambda facts: run(cost={**facts.run["cost"], **changes})(facts)


def chain(broken_at: int | None, checked_until: int) -> Change:
    """Walking the chain found otherwise."""
    return given(chain={"broken_at": broken_at, "checked_until": checked_until})


def replayed(seconds: float, steps: float) -> Change:
    """The driver that came back measured otherwise."""
    return given(drivers={"driver-1": replay(seconds, steps)})


def exits(*codes: int, at_s: float = 3600.0) -> Change:
    """Drivers ended with these codes."""
    at = START + timedelta(seconds=at_s)
    return given(exits=tuple(Exit("driver-1", 7, code, at, False) for code in codes))


def weights(version: int, world: str, doc: int, value: float) -> Change:
    """One weight is otherwise."""

    def change(facts: Facts) -> Facts:
        found: Any = json.loads(json.dumps({str(k): v for k, v in facts.weights.items()}))
        found[str(version)]["doc_prior"][world][doc] = value
        return replace(facts, weights={int(k): v for k, v in found.items()})

    return change


def slow_recovery(facts: Facts) -> Facts:
    """The crash was announced three seconds before the first new work."""
    crashed = facts.crash()
    early: Any = {**(crashed or {}), "recorded_at": (START - timedelta(seconds=3)).isoformat()}
    return replace(facts, events=tuple(early if e is crashed else e for e in facts.events))


def slow_forks(facts: Facts) -> Facts:
    """Most forks took between 50 and 100 ms."""
    name = "trialog_sandbox_fork_seconds_bucket"
    buckets = {"0.05": 4.0, "0.1": 18.0, "+Inf": 18.0}
    samples = [Sample(name, {"le": le}, n) for le, n in buckets.items()]
    return replace(facts, sandboxes={"sandbox-1": samples, "sandbox-2": []})


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
    (crash.chain_verifies, chain(7, 10_000)),
    (crash.chain_verifies, chain(None, 20)),
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
