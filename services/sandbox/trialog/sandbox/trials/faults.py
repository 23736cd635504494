"""Faults that a run asks for, on tasks: they strike before the agent begins."""

from __future__ import annotations

import asyncio

from trialog.proto.seeds import generator
from trialog.sandbox.errors import InjectedFault, TrialTimedOutError
from trialog.spine.consumer import Held


async def strike(held: Held, trial_id: str) -> None:
    """Fail, slow down or hang a trial as its run says. Raises InjectedFault, TrialTimedOutError."""
    spec = held.run.spec
    faults = spec.faults
    draw = generator("trial", trial_id, run_seed=spec.seed)
    if held.injected == 0 and draw.random() < faults.flaky_trial_rate:
        raise InjectedFault(f"{trial_id} drew a flaky first attempt")
    if trial_id in faults.always_fail:
        raise InjectedFault(f"{trial_id} is told to fail every attempt")
    # A hang is a transient fault: the attempt after it goes its way.
    if trial_id in faults.hang and held.failures == held.injected:
        await asyncio.sleep(spec.timeouts.trial_s)
        raise TrialTimedOutError(f"{trial_id} was told to hang, {spec.timeouts.trial_s:g} s long")
    if trial_id in faults.straggler:
        await asyncio.sleep(faults.straggler[trial_id])
