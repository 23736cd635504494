"""Ways in which the facts of a demo can be otherwise than its claims say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from support.demo_facts import START, replay
from trialog.cli.facts import Exit, Facts
from trialog.cli.fork_facts import ForkFacts
from trialog.cli.metrics import Sample

Change = Callable[[Facts], Facts]


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


def forked(which: str, change: Callable[[Any], Any]) -> Change:
    """One fork is otherwise."""

    def changed(facts: Facts) -> Facts:
        other = change(getattr(facts.forks, which))
        return replace(facts, forks=replace(facts.forks, **{which: other}))

    return changed


def unmade(which: str) -> Change:
    """A fork was not made, or did not end."""
    return forked(which, lambda _: ForkFacts())


def counted(which: str, *calls: str) -> Change:
    """The judge counted other calls while a fork ran."""
    return forked(which, lambda fork: replace(fork, called=Counter(calls)))


def uncounted(which: str) -> Change:
    """The judge did not say how often it was called."""
    return forked(which, lambda fork: replace(fork, called=None))


def means(which: str, *values: float) -> Change:
    """The steps of a fork have other mean rewards."""
    steps = [{"step": n, "mean_reward": value} for n, value in enumerate(values)]
    return forked(which, run(steps=steps))


def planned(kind: str, **counts: int) -> Change:
    """The dry run said otherwise."""

    def change(facts: Facts) -> Facts:
        plan: Any = json.loads(json.dumps(facts.forks.plan))
        plan["totals"][kind] |= counts
        return replace(facts, forks=replace(facts.forks, plan=plan))

    return change


def slow_fork(facts: Any) -> Any:
    """A fork ended more than a second after it was asked for."""
    *events, last = facts.events
    late = {**last, "recorded_at": (START + timedelta(hours=2)).isoformat()}
    return replace(facts, events=(*events, late))


def saved(which: str, usd: float) -> Change:
    """A fork shows that its memo saved another sum."""
    other = {"judge_calls": 18, "usd": usd}
    return forked(which, cost(saved_by_memo=other))
