"""What is kept of a try that somebody's own agent broke: where its code raised what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from trialog.sandbox.errors import AgentError
from trialog.sandbox.traces import trace_of
from trialog.sandbox.trials import left
from trialog.sandbox.trials.trial import Trial
from trialog.spine import telemetry

EXCEPTION = "exception.txt"


@asynccontextmanager
async def traces_kept(trial: Trial) -> AsyncGenerator[None]:
    """Log the traceback of what an agent's own code raised, and keep it as the error's record."""
    try:
        yield
    except AgentError as error:
        if error.__cause__ is not None:
            error.record = await _kept(trial, error, trace_of(error.__cause__))
        raise


async def _kept(trial: Trial, error: AgentError, trace: str) -> str:
    run_id = trial.held.run.run_id
    log = telemetry.logger().bind(run=run_id, trial=trial.trial_id, agent=trial.spec.agent)
    log.warning("an agent broke", error=error.name, traceback=trace)
    folder = trial.folder / "broken"
    folder.mkdir()
    (folder / EXCEPTION).write_text(trace, "utf-8", "backslashreplace")
    return await trial.host.blobs.put(await asyncio.to_thread(left.pack, folder))
