"""The forks that the demo makes of its run, one after the other, and what is found out of each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trialog.cli import output
from trialog.cli.fork_facts import RUBRIC, ForkFacts, Forks, said
from trialog.cli.progress import RunProgress
from trialog.cli.readback import events_of, trials_of, weights_of
from trialog.client import ApiError

if TYPE_CHECKING:
    from trialog.cli.watch import View
    from trialog.client import AsyncTrialogClient
    from trialog.client.fork_models import Mode, Plan

LONGEST_S = 30.0
"""What a fork may take. After that its claims fail, and the table is shown all the same."""


def by_criterion(weight: float) -> dict[str, Any]:
    """Return a rubric that asks the judge about one criterion in a call of its own."""
    asked = {"name": "efficiency", "weight": weight}
    criteria = [{"name": "right", "check": "correct"}, asked]
    return {"name": "by-criterion", "scoring": "per_criterion", "criteria": criteria}


@dataclass(frozen=True)
class Forking:
    """Makes the forks. ``judge_calls`` returns the judge's own count by call key, or None when it
    does not answer; ``view`` makes what shows the one that takes seconds."""

    client: AsyncTrialogClient
    judge_calls: Callable[[], Awaitable[Counter[str] | None]]
    view: Callable[[], View]

    async def of(self, run_id: str) -> Forks:
        """Fork a completed run. Raises TrialogError where the server does not answer."""
        plan = await self._plan(run_id)
        changed = await self._fork(run_id, f"rubric {RUBRIC}", rubric=RUBRIC, shown=True)
        unchanged = await self._fork(run_id, "nothing changed")
        rescored = await self._fork(run_id, f"{RUBRIC}, rescored", rubric=RUBRIC, mode="rescore")
        first = {"rubric": by_criterion(0.5)}
        scored = await self._fork(run_id, "rescored by criterion", first, mode="rescore")
        reweighted = ForkFacts()
        if scored.run is not None:
            other = {"rubric": by_criterion(1.5)}
            reweighted = await self._fork(scored.run["run_id"], "other weights", other)
        return Forks(plan, changed, unchanged, rescored, scored, reweighted)

    async def _plan(self, run_id: str) -> Plan | None:
        try:
            plan = await self.client.plan_fork(run_id, rubric=RUBRIC)
        except ApiError as error:
            output.note(f"no dry run of the fork: {error}")
            return None
        calls, usd = plan["estimate"]["judge_calls"], plan["estimate"]["usd"]
        cost = f", {usd['at_least']:.4f} to {usd['at_most']:.4f} USD" if usd else ""
        output.note(
            f"dry run of a fork with rubric {RUBRIC}: "
            f"{calls['at_least']:.0f} to {calls['at_most']:.0f} judge calls{cost}"
        )
        return plan

    async def _fork(
        self,
        run_id: str,
        what: str,
        changes: dict[str, Any] | None = None,
        *,
        rubric: str | None = None,
        mode: Mode | None = None,
        shown: bool = False,
    ) -> ForkFacts:
        """Make a fork and wait for its end; of one that does not come to it, nothing is known."""
        before = await self.judge_calls()
        try:
            async with asyncio.timeout(LONGEST_S):
                fork = await self.client.fork(run_id, changes, rubric=rubric, mode=mode)
                await self._watch(fork["run_id"], shown)
                found = await self._facts(fork["run_id"], before)
        except (ApiError, TimeoutError) as error:
            output.note(f"fork, {what}: {error or f'no end within {LONGEST_S:g} s'}")
            return ForkFacts()
        output.note(f"fork, {what}: {took(found)}, executed {said(found.counts('executed'))}")
        return found

    async def _watch(self, run_id: str, shown: bool) -> None:
        if not shown:
            async for _ in self.client.watch(run_id):
                pass
            return
        progress = RunProgress()
        with self.view() as view:
            async for event in self.client.watch(run_id):
                progress.apply(event)
                view.show(progress, event)

    async def _facts(self, run_id: str, before: Counter[str] | None) -> ForkFacts:
        run = await self.client.get_run(run_id)
        return ForkFacts(
            run=run,
            trials=await trials_of(self.client, run_id),
            weights=await weights_of(self.client, run),
            events=await events_of(self.client, run_id),
            called=_difference(await self.judge_calls(), before),
        )


def _difference(now: Counter[str] | None, before: Counter[str] | None) -> Counter[str] | None:
    return None if now is None or before is None else now - before


def took(fork: ForkFacts) -> str:
    """Return in words how a fork ended and when."""
    took_s, state = fork.took_s(), fork.run["state"] if fork.run else "unknown"
    return state if took_s is None else f"{state} after {took_s:.2f} s"
