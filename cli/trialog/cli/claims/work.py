"""Claims about the work that was done for it: none of it twice, all of it spread."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping

from trialog.cli import metrics
from trialog.cli.claims.row import Row, compare, row, within
from trialog.cli.facts import Facts
from trialog.proto.work import BUILD_WORLD, GENERATE, JUDGE, KIND_OF_STAGE, TRAIN_STEP, VERIFY

FORK_MS = 50.0
FORK_METRIC = "trialog_sandbox_fork_seconds"
WORK_METRIC = "trialog_work_total"
_SHOWN = 3


def judge_called_once(facts: Facts) -> Row:
    """The judge itself counted one call a trial, and they are the recorded ones (I4)."""
    trials = len(facts.golden["trajectories"])
    recorded = {data["call_key"] for data in facts.data_of("JudgeCallRecorded")}
    by_key: Mapping[str, int] = facts.judge.get("by_key", {})
    most = max(by_key.values(), default=0)
    started = len(facts.data_of("JudgeCallStarted"))
    ok = (
        facts.judge.get("calls") == trials == len(recorded) == started
        and most == 1
        and set(by_key) == recorded
    )
    return row(
        "The judge was called once a trial (its own count)",
        f"{trials} calls, at most 1 a trial",
        f"{facts.judge.get('calls')} calls, at most {most} a trial, {len(recorded)} recorded",
        ok,
    )


def bill(facts: Facts) -> Row:
    """What the run says it cost is the sum of its recorded calls, and each was paid for once."""
    calls = [data for data in facts.data_of("JudgeCallRecorded") if not data.get("provenance")]
    recorded_usd = sum(data["cost_microusd"] for data in calls) / 1_000_000
    cost, trials = facts.run["cost"], len(facts.golden["trajectories"])
    ok = (
        cost["judge_calls"] == len(calls) == trials
        and round(cost["usd"], 6) == round(recorded_usd, 6)
        and recorded_usd > 0
    )
    return row(
        "The bill is the sum of the recorded calls",
        f"{trials} calls, {recorded_usd:.6f} USD",
        f"{cost['judge_calls']} calls, {cost['usd']:.6f} USD",
        ok,
    )


def account(facts: Facts) -> Row:
    """The run counts every kind of action, and none of them beyond what it asked for."""
    trials, steps = len(facts.golden["trajectories"]), len(facts.golden["steps"])
    worlds = len({trial["world_id"] for trial in facts.golden["trajectories"].values()})
    expected = {
        BUILD_WORLD: worlds,
        **dict.fromkeys((GENERATE, VERIFY, "judge_call", JUDGE), trials),
        TRAIN_STEP: steps,
    }
    executed = facts.run["counts"]["executed"]
    return compare("Each kind of action is counted, once each", "kinds", expected, executed)


def no_call_on_retry(facts: Facts) -> Row:
    """A judgment that failed after its call was tried again without another call."""
    failed = {event["data"]["subject"]: event["position"] for event in facts.injected(JUDGE)}
    again = [
        event["data"]["trial_id"]
        for event in facts.of_type("JudgeCallStarted", "JudgeCallRecorded")
        if event["position"] > failed.get(event["data"]["trial_id"], event["position"])
    ]
    ok = not again and bool(failed)
    measured = f"{len(again)} calls on {len(failed)} retries"
    retried = len(facts.golden["judge_retried"])
    return row("A retried judgment calls no judge", f"0 calls on {retried} retries", measured, ok)


def generate_retries(facts: Facts) -> Row:
    """The trials whose generation flaked are the golden ones, each retried once."""
    return _retries(facts, GENERATE, "generate_retried", "Flaky generations are retried")


def judge_retries(facts: Facts) -> Row:
    """The trials whose judgment flaked are the golden ones, each retried once."""
    return _retries(facts, JUDGE, "judge_retried", "Flaky judgments are retried")


def _retries(facts: Facts, stage: str, key: str, claim: str) -> Row:
    expected = Counter[str](facts.golden[key])
    failed = Counter[str](event["data"]["subject"] for event in facts.injected(stage))
    scheduled = Counter[str](
        data["subject"] for data in facts.data_of("TrialRetryScheduled") if data["stage"] == stage
    )
    differ = sorted({*_differ(failed, expected), *_differ(scheduled, expected)})
    right = "the golden trials" if not differ else f"not as golden: {' '.join(differ[:_SHOWN])}"
    return row(
        claim,
        f"{expected.total()} retries, the golden trials",
        f"{scheduled.total()} retries, {right}",
        failed == expected == scheduled,
    )


def _differ(one: Counter[str], other: Counter[str]) -> Counter[str]:
    return (one - other) + (other - one)


def one_actor(facts: Facts) -> Row:
    """Every step was applied by one Ray actor in one process, over the driver's crash."""
    applied = facts.data_of("StepApplied")
    actors = {data.get("actor") for data in applied} - {None, ""}
    pids = {data.get("pid") for data in applied} - {None, 0}
    steps = len(facts.golden["steps"])
    measured = f"{len(applied)} steps, {len(actors)} actor, {len(pids)} pid"
    return row("One Ray actor applies every step", f"{steps} steps, 1 actor, 1 pid", measured)


def steps_chain(facts: Facts) -> Row:
    """Each step starts from the weights of the one before, and is applied once (I5)."""
    applied = facts.data_of("StepApplied")
    links = sum(
        before["digest"] == after["prior_digest"] and after["step"] == before["step"] + 1
        for before, after in itertools.pairwise(applied)
    )
    wanted = len(facts.golden["steps"]) - 1
    ok = links == wanted == len(applied) - 1
    return row(
        "Each step starts from the last one's weights", f"{wanted} links", f"{links} links", ok
    )


def worlds_built_once(facts: Facts) -> Row:
    """Each world is built once a run, across the crash too."""
    wanted = {trial["world_id"] for trial in facts.golden["trajectories"].values()}
    built = Counter(d["world_id"] for d in facts.data_of("WorldBuilt") if not d.get("provenance"))
    executed = facts.run["counts"]["executed"].get("build_world")
    ok = built == Counter(wanted) and executed == len(wanted)
    return row("Each world is built once", f"{len(wanted)} builds", f"{built.total()} builds", ok)


def fork_time(facts: Facts) -> Row:
    """Forking a world and running the first command in it takes a moment."""
    claim = "A world's fork and first command (median)"
    return within(claim, FORK_MS, fork_ms(facts), "ms", "not reported")


def fork_ms(facts: Facts) -> float | None:
    """Return the median of all sandboxes' own measurements, None when there is none."""
    samples = itertools.chain.from_iterable(facts.sandboxes.values())
    median_s = metrics.quantile(samples, FORK_METRIC, 0.5)
    return None if median_s is None else 1000 * median_s


def work_spread(facts: Facts) -> Row:
    """Every sandbox process ran trials."""
    shares = [
        int(metrics.total(samples, WORK_METRIC, kind=KIND_OF_STAGE[GENERATE], ended="done"))
        for samples in facts.sandboxes.values()
    ]
    working = sum(share > 0 for share in shares)
    wanted = len(facts.sandboxes)
    return row(
        "Trials are spread over the sandboxes",
        f"{wanted} of {wanted} at work",
        f"{working} of {wanted} at work ({' + '.join(map(str, sorted(shares)))} trials)",
        working == wanted > 0,
    )
