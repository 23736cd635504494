"""Claims about the demo's forks: each has what it should, and executed only what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from trialog.cli.claims import results
from trialog.cli.claims.row import Row, compare, row, within
from trialog.cli.facts import Facts
from trialog.cli.fork_facts import RUBRIC, Bill, ForkFacts, said
from trialog.proto.work import BUILD_WORLD, GENERATE, JUDGE, TRAIN_STEP, VERIFY

if TYPE_CHECKING:
    from trialog.client.models import Event

UNCHANGED_S = 1.0
CALL = "judge_call"
KINDS = (BUILD_WORLD, GENERATE, VERIFY, CALL, JUDGE, TRAIN_STEP)
_USD = 1_000_000


def golden_trials(facts: Facts) -> Row:
    """The fork with another rubric did exactly the golden things, and was rewarded as they were."""
    fork, golden = facts.forks.changed, facts.golden_fork
    done = {
        name: (trial["turns"], trial["answer"], trial["files_written"])
        for name, trial in fork.trials.items()
    }
    wanted = {
        name: (trial["turns"], trial["answer"], trial["files"])
        for name, trial in golden["trajectories"].items()
    }
    return compare(
        f"Fork with rubric {RUBRIC}: its trials are golden",
        "trials",
        _joined(wanted, results.golden_earned(golden)),
        _joined(done, results.earned(fork.trials)),
    )


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (one.get(name), other.get(name)) for name in one.keys() | other.keys()}


def golden_means(facts: Facts) -> Row:
    """Its mean rewards are the golden ones."""
    return row(
        "Fork: its mean rewards are golden",
        _means(facts.golden_fork["steps"]),
        _means(facts.forks.changed.run["steps"] if facts.forks.changed.run else []),
    )


def _means(steps: Iterable[Mapping[str, Any]]) -> str:
    means = [step["mean_reward"] for step in steps]
    return " ".join("-" if mean is None else f"{mean:.3f}" for mean in means) or "none"


def golden_weights(facts: Facts) -> Row:
    """Its weights after each step are the golden ones."""
    expected = results.golden_priors(facts.golden_fork)
    measured = results.priors(facts.forks.changed.weights)
    return compare("Fork: its weights are golden", "versions", expected, measured)


def recovered(facts: Facts) -> Row:
    """Worlds and the first step's trajectories are the parent's, to the byte, and say so."""
    fork = facts.forks.changed
    ours = _recovered(fork.of_type("WorldBuilt", "TrajectoryRecorded"))
    theirs = {
        (facts.run["run_id"], event["position"]): event
        for event in facts.of_type("WorldBuilt", "TrajectoryRecorded")
    }
    same = [
        event
        for source, event in ours.items()
        if source in theirs and _content(event) == _content(theirs[source])
    ]
    worlds = sum(event["type"] == "WorldBuilt" for event in same)
    first = facts.golden_fork["steps"][0]
    wanted = len({reward["world_id"] for reward in first["rewards"]})
    verified = len(facts.golden_fork["trajectories"]) - _otherwise(facts)
    counts = fork.counts("recovered")
    return row(
        "Fork: worlds and step 0 are the parent's, byte for byte",
        f"{wanted} worlds, {first['n']} trajectories",
        f"{worlds} worlds, {len(same) - worlds} trajectories",
        (worlds, len(same) - worlds) == (wanted, first["n"])
        and len(ours) == len(same)
        and counts == _only({BUILD_WORLD: wanted, GENERATE: first["n"], VERIFY: verified}),
    )


def _otherwise(facts: Facts) -> int:
    """Return how many trajectories of the fork are not the parent's: the rest, also where it is
    generated anew, is verified already."""
    before, after = facts.golden["trajectories"], facts.golden_fork["trajectories"]
    kept = ("turns", "answer", "files")
    return sum(any(after[name][key] != before[name][key] for key in kept) for name in after)


def _recovered(events: Iterable[Event]) -> dict[tuple[str, int], Event]:
    """Return recovered facts by where they were first recorded."""
    found: dict[tuple[str, int], Event] = {}
    for event in events:
        source = event["data"].get("provenance")
        if source:
            found[source["run_id"], source["position"]] = event
    return found


def _content(event: Event) -> tuple[Any, ...]:
    data = event["data"]
    return tuple(data.get(key) for key in ("world_id", "trial_id", "digest", "blob"))


def executed(facts: Facts) -> Row:
    """What follows from the rubric is executed, once each, and nothing else."""
    steps = facts.golden_fork["steps"]
    trials, later = sum(step["n"] for step in steps), sum(step["n"] for step in steps[1:])
    verified = _otherwise(facts)
    wanted = {
        GENERATE: later,
        VERIFY: verified,
        CALL: trials,
        JUDGE: trials,
        TRAIN_STEP: len(steps),
    }
    return _executes("Fork: the rest is executed, once each", facts.forks.changed, _only(wanted))


def _only(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts of all kinds of actions: these, and none of the others."""
    return {kind: counts.get(kind, 0) for kind in KINDS}


def _executes(claim: str, fork: ForkFacts, wanted: Mapping[str, int], ok: bool = True) -> Row:
    found = fork.counts("executed")
    completed = fork.run is not None and fork.run["state"] == "completed"
    return row(claim, said(wanted), _made(fork), ok and completed and found == wanted)


def _made(fork: ForkFacts) -> str:
    return "not measured" if fork.run is None else said(fork.counts("executed"))


def first_step(facts: Facts) -> Row:
    """The same trajectories are worth something else, for no more than their judging."""
    fork, step = facts.forks.changed, facts.golden_fork["steps"][0]
    before, after = (_first_mean(run) for run in (facts.run, fork.run))
    trials = {reward["trial_id"] for reward in step["rewards"]}
    calls, tries = (
        sum(not event["data"].get("provenance") for event in fork.of_type(type_)
            if event["data"]["trial_id"] in trials)
        for type_ in ("JudgeCallRecorded", "TrajectoryRecorded")
    )  # fmt: skip
    was = facts.golden["steps"][0]["mean_reward"]
    return row(
        "Fork: step 0 is worth something else, unrepeated",
        f"{was:.3f} to {step['mean_reward']:.3f}, {step['n']} calls, 0 trials",
        f"{before} to {after}, {calls} calls, {tries} trials",
    )


def _first_mean(run: Mapping[str, Any] | None) -> str:
    """Return the mean reward of a run's first step."""
    return _means(run["steps"][:1]) if run else "none"


def judge_count(facts: Facts) -> Row:
    """The judge itself counted the fork's calls: one a trial, and they are the recorded ones."""
    fork = facts.forks.changed
    trials = len(facts.golden_fork["trajectories"])
    recorded = {event["data"]["call_key"] for event in fork.of_type("JudgeCallRecorded")}
    called = fork.called or {}
    most = max(called.values(), default=0)
    return row(
        "Fork: the judge was called once a trial (its own count)",
        f"{trials} calls, at most 1 a trial",
        f"{fork.n_called} calls, at most {most} a trial",
        set(called) == recorded and (fork.n_called, most) == (trials, 1),
    )


def planned(facts: Facts) -> Row:
    """The dry run said before what would be executed at least and at most; it recorded nothing."""
    plan, fork = facts.forks.plan, facts.forks.changed
    claim = "Fork: the dry run foretold what it executes, and recorded nothing"
    steps = facts.golden_fork["steps"]
    expected = f"{steps[0]['n']} to {sum(step['n'] for step in steps)} calls, all kinds within"
    if plan is None or fork.run is None:
        return row(claim, expected, "not measured", False)
    found = fork.counts("executed")
    beyond = [
        kind
        for kind, said in plan["totals"].items()
        if not said["executed"] <= found[kind] <= said["executed"] + said["unknown"]
        or fork.counts("recovered")[kind] < said["recovered"]
    ]
    calls = plan["estimate"]["judge_calls"]
    within = "all kinds within" if not beyond else f"not within: {' '.join(beyond)}"
    measured = f"{calls['at_least']:.0f} to {calls['at_most']:.0f} calls, {within}"
    began = fork.events[0]["position"] if fork.events else 0
    recorded = began - plan["position"] - 1
    if recorded:
        measured += f", {recorded} events"
    return row(claim, expected, measured)


def unchanged(facts: Facts) -> Row:
    """A fork with nothing changed executes nothing, and ends with its parent's weights (I9)."""
    fork = facts.forks.unchanged
    weights = {version: one["digest"] for version, one in fork.weights.items()}
    same = weights == {version: one["digest"] for version, one in facts.weights.items()}
    worth = results.earned(fork.trials) == results.earned(facts.trials)
    ok = same and worth and fork.n_called == 0
    return _executes("An unchanged fork executes nothing", fork, _only({}), ok)


def unchanged_at_once(facts: Facts) -> Row:
    """By the log's own times it is complete soon after it was asked for."""
    claim = "The unchanged fork is complete soon after its POST"
    return within(claim, UNCHANGED_S, facts.forks.unchanged.took_s(), "s", "not measured")


def rescored(facts: Facts) -> Row:
    """Rescoring judges every trajectory as it is; only those that the first fork did not have are
    new to the judge."""
    fork, trials = facts.forks.rescored, facts.golden["trajectories"]
    others = facts.golden_fork["trajectories"]
    new = sum(_did(trial) != _did(others[name]) for name, trial in trials.items())
    same = _blobs(fork.of_type("TrajectoryRecorded")) == _blobs(facts.of_type("TrajectoryRecorded"))
    return _executes(
        f"Rescoring judges the run's trajectories anew; {len(trials) - new} replies are on the log",
        fork,
        _only({CALL: new, JUDGE: len(trials)}),
        same and fork.n_called == new,
    )


def _did(trial: Mapping[str, Any]) -> tuple[Any, ...]:
    return trial["turns"], trial["answer"], trial["files"]


def _blobs(events: Iterable[Event]) -> dict[str, str]:
    return {event["data"]["trial_id"]: event["data"]["blob"] for event in events}


def reweighted(facts: Facts) -> Row:
    """With other weights alone, criteria keep their scores: no call, and other rewards."""
    before, fork = facts.forks.by_criterion, facts.forks.reweighted
    trials = len(facts.golden["trajectories"])
    scores, rewards = (
        [{name: trial[what] for name, trial in one.trials.items()} for one in (before, fork)]
        for what in ("scores", "reward")
    )
    ok = scores[0] == scores[1] and rewards[0] != rewards[1] and fork.n_called == 0
    return _executes(
        "Other weights, by criterion, call no judge",
        fork,
        _only({JUDGE: trials}),
        ok and bool(before.n_called),
    )


def bill(facts: Facts) -> Row:
    """Spent and saved come to what all judgments of all forks rest on, to the millionth."""
    forks = facts.forks.all()
    owed = sum((fork.owed() for fork in forks), Bill())
    parts = {
        part: sum((fork.shown().get(part, Bill()) for fork in forks), Bill())
        for part in ("spent", "memo", "recovery")
    }
    total = sum(parts.values(), Bill())
    shown = " + ".join(f"{one.microusd / _USD:.6f} {part}" for part, one in parts.items())
    paid = all(fork.run is not None for fork in forks) and parts["spent"].calls > 0
    called = sum(fork.n_called or 0 for fork in forks)
    return row(
        "The five forks' judge calls: spent and saved come to what they rest on",
        f"{owed.microusd / _USD:.6f} USD",
        f"{shown} = {total.microusd / _USD:.6f} USD",
        paid and total == owed and parts["spent"].calls == called,
    )
