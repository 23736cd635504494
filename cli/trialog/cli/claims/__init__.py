"""The demo's claims: each a pure function from facts to a row *claim, expected, measured, ok*.

A claim holds only if it was measured: what is missing fails.
"""

from __future__ import annotations

from collections.abc import Callable

from trialog.cli.claims import crash, forks, results, work
from trialog.cli.claims.row import Row
from trialog.cli.facts import Facts
from trialog.proto.work import GENERATE, JUDGE

__all__ = ["CLAIMS", "Row", "check", "figures"]

CLAIMS: tuple[Callable[[Facts], Row], ...] = (
    results.completed,
    results.all_judged,
    results.golden_turns,
    results.golden_files,
    results.golden_rewards,
    results.golden_means,
    results.golden_weights,
    work.judge_called_once,
    work.no_call_on_retry,
    work.bill,
    work.generate_retries,
    work.judge_retries,
    work.one_actor,
    work.steps_chain,
    crash.driver_killed,
    crash.crash_announced,
    crash.nothing_again,
    work.account,
    work.worlds_built_once,
    crash.recovery,
    crash.replay,
    work.fork_time,
    work.work_spread,
    crash.positions_contiguous,
    forks.golden_trials,
    forks.golden_means,
    forks.golden_weights,
    forks.recovered,
    forks.executed,
    forks.first_step,
    forks.judge_count,
    forks.planned,
    forks.unchanged,
    forks.unchanged_at_once,
    forks.rescored,
    forks.reweighted,
    forks.bill,
    crash.chain_verifies,
    crash.in_time,
)


def check(facts: Facts) -> list[Row]:
    """Return a row for each claim. A warm standby goes on without a replay: it has followed."""
    shown = [one for one in CLAIMS if not (facts.standby and one is crash.replay)]
    return [claim(facts) for claim in shown]


def figures(facts: Facts) -> dict[str, float | int | None]:
    """Return the numbers behind the rows."""
    return {
        "total_s": round(facts.total_s, 3),
        "recovery_s": facts.recovery_s(),
        "replay_ms_per_step": crash.replay_ms(facts),
        "cost_usd": facts.run["cost"]["usd"],
        "fork_ms": work.fork_ms(facts),
        "run_s": facts.run_s(),
        "events": len(facts.events),
        "judge_calls": facts.judge.get("calls"),
        "generate_retries": len(facts.injected(GENERATE)),
        "judge_retries": len(facts.injected(JUDGE)),
        "run_fork_s": facts.forks.changed.took_s(),
        "unchanged_run_fork_s": facts.forks.unchanged.took_s(),
        "driver_restarts": sum(
            n for name, n in facts.restarts.items() if name.startswith("driver")
        ),
    }
