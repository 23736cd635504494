"""Claims about the driver's crash, and about the whole."""

from __future__ import annotations

from trialog.cli.claims.row import Row, row, within
from trialog.cli.facts import CRASH_STEP, Facts
from trialog.proto.work import GENERATE

COLD_RECOVERY_S = 2.0
STANDBY_RECOVERY_S = 1.0
REPLAY_MS = 1.0
TOTAL_S = 60.0


def driver_killed(facts: Facts) -> Row:
    """A driver ended by SIGKILL exactly once, as the stack saw it, and was started again."""
    codes = [one.returncode for one in facts.driver_exits()]
    restarts = sum(n for name, n in facts.restarts.items() if name.startswith("driver"))
    measured = f"exits {codes}, {restarts} restart"
    return row("The driver is killed once and restarted", "exits [-9], 1 restart", measured)


def crash_announced(facts: Facts) -> Row:
    """The crash is on the log once, after step 1 was applied and before the kill."""
    faults = list(facts.of_type("FaultInjected"))
    applied = [e for e in facts.of_type("StepApplied") if e["data"]["step"] == CRASH_STEP]
    kills = facts.driver_exits()
    first = min((one.at for one in kills), default=None)
    ok = (
        len(faults) == 1
        and len(applied) == 1
        and applied[0]["position"] < faults[0]["position"]
        and first is not None
        and facts.crash_time() < first
    )
    return row(
        "The crash is recorded before the kill, once",
        "1 event, after step 1, before the kill",
        f"{len(faults)} event, {'in' if ok else 'not in'} this order",
        ok,
    )


def nothing_again(facts: Facts) -> Row:
    """After the crash, nothing of the steps before it is requested or executed again."""
    again = [
        event
        for event in facts.after_crash(
            "TrialRequested", "TrajectoryRecorded", "TrialVerified", "Judged", "StepApplied"
        )
        if event["data"]["step"] <= CRASH_STEP
    ]
    calls = [
        event
        for event in facts.after_crash("JudgeCallStarted")
        if _step(event["data"]["trial_id"]) <= CRASH_STEP
    ]
    lost = [data for data in facts.data_of("TrialAttemptFailed") if data["failure"] == "lost"]
    generated = facts.run["counts"]["executed"].get(GENERATE)
    wanted = len(facts.golden["trajectories"])
    ok = facts.crash() is not None and not again and not calls and not lost and generated == wanted
    return row(
        "After the crash nothing is executed again",
        f"0 repeated, {wanted} generations in all",
        f"{len(again) + len(calls) + len(lost)} repeated, {generated} generations in all",
        ok,
    )


def _step(trial_id: str) -> int:
    return int(trial_id[1 : trial_id.index("-")])


def recovery(facts: Facts) -> Row:
    """The first trial after the crash is requested soon."""
    limit_s = STANDBY_RECOVERY_S if facts.standby else COLD_RECOVERY_S
    kind = "warm standby" if facts.standby else "cold restart"
    claim = f"New work soon after the kill ({kind})"
    return within(claim, limit_s, facts.recovery_s(), "s", "no new work")


def replay(facts: Facts) -> Row:
    """The driver that came back read and folded the log in a moment."""
    claim = "Replay of a recorded step, reading included"
    return within(claim, REPLAY_MS, replay_ms(facts), "ms", "not measured")


def replay_ms(facts: Facts) -> float | None:
    """Return how long the replay took for each step that was on the log."""
    found = facts.replay()
    if found is None:
        return None
    took_s, steps = found
    return 1000 * took_s / steps


def chain_verifies(facts: Facts) -> Row:
    """Every event of the log follows from the one before it, to the end (I1)."""
    logs = (facts.events, *(fork.events for fork in facts.forks.all()))
    last = max((events[-1]["position"] for events in logs if events), default=0)
    broken, until = facts.chain["broken_at"], facts.chain["checked_until"]
    return row(
        "The log's hash chain verifies",
        f"{last} links, none broken",
        f"{until} links, {'none' if broken is None else f'number {broken}'} broken",
        broken is None and until >= last > 0,
    )


def positions_contiguous(facts: Facts) -> Row:
    """The log has no gaps: this run is alone in its part of it (I1)."""
    positions = [event["position"] for event in facts.events]
    wanted = list(range(1, len(positions) + 1))
    measured = "contiguous" if positions == wanted else "gaps"
    return row(
        "The log's positions are contiguous", "contiguous", measured, None if positions else False
    )


def in_time(facts: Facts) -> Row:
    """All of it is quick: start, run, crash, recovery, forks."""
    return within("The whole demo is quick", TOTAL_S, facts.total_s, "s", "not measured")
