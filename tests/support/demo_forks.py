"""Made-up forks of the made-up demo run in which every claim holds, from the golden numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from support.fake_api import KINDS, make_run, make_trial
from trialog.cli.claims.results import rounded
from trialog.cli.fork_facts import ForkFacts, Forks

FORKED_AT = datetime.fromisoformat("2026-11-30T13:00:00+00:00")
PRICE = 1000
"""Millionths of a dollar for each call."""
Golden = Mapping[str, Any]
Events = Iterable[Mapping[str, Any]]


class _Log:
    """The events of one fork, one every 10 ms, after a position."""

    def __init__(self, run_id: str, after: int) -> None:
        self.run_id, self.after = run_id, after
        self.events: list[Any] = []

    def add(self, type_: str, **data: Any) -> None:
        at = FORKED_AT + timedelta(milliseconds=10 * len(self.events))
        event = {"position": self.after + 1 + len(self.events), "run_id": self.run_id}
        about = {"type": type_, "data": data, "recorded_at": at.isoformat()}
        self.events.append(event | about | {"event_id": "", "schema_version": 1})

    def recover(self, event: Mapping[str, Any]) -> None:
        source = {"run_id": event["run_id"], "position": event["position"]}
        self.add(event["type"], **event["data"], provenance=source)

    def judge(self, trial: str, *, calls: int, paid: int = 0, retried: bool = False) -> None:
        """Judge a trial; a judgment that flakes has paid before, its retry finds the reply."""
        for n in range(paid):
            self.add("JudgeCallStarted", trial_id=trial, call_key=f"{self.run_id}-{trial}-{n}")
            called = {"trial_id": trial, "call_key": f"{self.run_id}-{trial}-{n}"}
            self.add("JudgeCallRecorded", **called, cost_microusd=PRICE)
        if retried:
            self.add("TrialAttemptFailed", subject=trial, stage="judge", failure="injected")
        self.add("Judged", trial_id=trial, bill=bill(calls))


def bill(calls: int) -> dict[str, int]:
    """Return the bill of so many calls as it is on the log."""
    return {"calls": calls, "cost_microusd": PRICE * calls}


def make_forks(golden: Golden, fork: Golden, parent: Events, first: int) -> Forks:
    """Return the demo's forks. ``parent``: the run's events; ``first``: the log's end."""
    rewards = [reward for step in golden["steps"] for reward in step["rewards"]]
    trials = {reward["trial_id"]: reward for reward in rewards}
    changed = _changed(golden, fork, parent, first)
    return Forks(
        plan=_plan(fork, first),
        changed=changed,
        unchanged=_unchanged(golden, parent, first),
        rescored=_rescored(golden, fork, parent),
        by_criterion=_scored(trials, calls=1, share=0.5),
        reweighted=_scored(trials, calls=0, share=1.5),
    )


def _changed(golden: Golden, fork: Golden, parent: Events, first: int) -> ForkFacts:
    log = _Log("r-changed", first)
    log.add("RunRequested")
    later = {name for name in fork["trajectories"] if not name.startswith("s0-")}
    for event in parent:
        trial = event["data"].get("trial_id", "s0-")
        if event["type"] in ("WorldBuilt", "TrajectoryRecorded") and trial not in later:
            log.recover(event)
    for name in fork["trajectories"]:
        if name in later:
            log.add("TrajectoryRecorded", trial_id=name, digest=name, blob=f"new-{name}")
        log.judge(name, calls=1, paid=1, retried=name in fork["judge_retried"])
    log.add("RunCompleted")
    n, retried = len(fork["trajectories"]), len(fork["judge_retried"])
    executed = {"generate": len(later), "verify": 1, "judge_call": n, "judge": n}
    recovered = {"build_world": 3, "generate": n - len(later), "verify": n - 1}
    return ForkFacts(
        run=_run(log, fork, executed | {"train_step": 3}, recovered, spent=n, memo=retried),
        trials=_trials(fork),
        weights=_weights(fork),
        events=tuple(log.events),
        called=_called(log),
    )


def _unchanged(golden: Golden, parent: Events, first: int) -> ForkFacts:
    log = _Log("r-unchanged", first + 500)
    log.add("RunRequested")
    for event in parent:
        if event["type"] == "StepApplied":
            log.recover(event)
            log.events[-1]["data"] |= {"whole": True, "bill": bill(6)}
    log.add("RunCompleted")
    run = _run(log, golden, {}, dict.fromkeys(KINDS, 18), recovery=18)
    return ForkFacts(run, _trials(golden), _weights(golden), tuple(log.events), Counter())


def _rescored(golden: Golden, fork: Golden, parent: Events) -> ForkFacts:
    log = _Log("r-rescored", 2000)
    log.add("RunRequested")
    for event in parent:
        if event["type"] == "TrajectoryRecorded":
            log.recover(event)
    theirs = fork["trajectories"]
    new = {name for name, did in golden["trajectories"].items() if did != theirs[name]}
    for name in golden["trajectories"]:
        log.judge(name, calls=1, paid=int(name in new))
    log.add("RunCompleted")
    n = len(golden["trajectories"])
    executed = {"judge": n, "judge_call": len(new)}
    run = _run(log, golden, executed, {}, spent=len(new), memo=n - len(new))
    return ForkFacts(run, {}, {}, tuple(log.events), _called(log))


def _scored(rewards: Mapping[str, Any], calls: int, share: float) -> ForkFacts:
    log = _Log(f"r-{share}", 3000)
    log.add("RunRequested")
    for name in rewards:
        log.judge(name, calls=1, paid=calls)
    log.add("RunCompleted")
    n = len(rewards)
    executed = {"judge": n, "judge_call": calls * n}
    run = _run(log, None, executed, {}, spent=calls * n, memo=n - calls * n)
    scores = {"right": 1.0, "efficiency": 0.25}
    trials: Any = {name: make_trial(name, scores=scores, reward=2 + share / 4) for name in rewards}
    return ForkFacts(run, trials, {}, tuple(log.events), _called(log))


def _called(log: _Log) -> Counter[str]:
    calls = (e["data"] for e in log.events if e["type"] == "JudgeCallRecorded")
    return Counter(data["call_key"] for data in calls)


def _run(
    log: _Log,
    golden: Golden | None,
    executed: Mapping[str, int],
    recovered: Mapping[str, int],
    *,
    spent: int = 0,
    memo: int = 0,
    recovery: int = 0,
) -> Any:
    run: Any = make_run(log.run_id, "completed")
    run["counts"]["executed"] |= executed
    run["counts"]["recovered"] |= recovered
    run["cost"] |= _cost(spent)
    run["cost"]["saved_by_memo"] = _cost(memo)
    run["cost"]["saved_by_recovery"] = _cost(recovery)
    steps = golden["steps"] if golden else []
    run["steps"] = [{"step": s["step"], "mean_reward": s["mean_reward"]} for s in steps]
    return run


def _cost(calls: int) -> dict[str, Any]:
    return {"judge_calls": calls, "usd": calls * PRICE / 1_000_000}


def _weights(golden: Golden) -> Any:
    """Return weights by version, with the digests that the demo's run has for them."""
    versions = ((step["step"] + 1, step["prior"]) for step in golden["steps"])
    return {v: {"version": v, "digest": "d", "doc_prior": prior} for v, prior in versions}


def _trials(golden: Golden) -> Any:
    rewards = {r["trial_id"]: r for step in golden["steps"] for r in step["rewards"]}
    keys = ("verified", "found_doc", "judge_score", "reward")
    return {
        name: make_trial(
            name,
            turns=did["turns"],
            answer=did["answer"],
            files_written=did["files"],
            **{key: rounded(rewards[name][key]) for key in keys},
        )
        for name, did in golden["trajectories"].items()
    }


def _plan(fork: Golden, position: int) -> Any:
    n = fork["steps"][0]["n"]
    rest = len(fork["trajectories"]) - n
    kept = {"recovered": n, "executed": 0, "unknown": rest}
    new = {"recovered": 0, "executed": n, "unknown": rest}
    return {
        "position": position,
        "totals": {
            "build_world": {"recovered": 3, "executed": 0, "unknown": 0},
            "generate": kept,
            "verify": dict(kept),
            "judge_call": new,
            "judge": dict(new),
            "train_step": {"recovered": 0, "executed": 1, "unknown": 2},
        },
        "estimate": {"judge_calls": {"at_least": n, "at_most": n + rest}},
    }
