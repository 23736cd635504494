"""Steering a run: cancel, pause, resume."""

from __future__ import annotations

from typing import Literal

from fastapi import Response

from trialog.driver.api import schemas
from trialog.driver.api.dependencies import ApiDependencies, Deps, Reading
from trialog.driver.api.problems import ProblemError
from trialog.driver.api.reader import Reader
from trialog.driver.api.routing import RunId, answer, problems, router
from trialog.driver.api.steps import run_with_steps
from trialog.driver.views import RUN_ENDED
from trialog.proto import events as ev
from trialog.spine.log import Append, new_event

_TRIES = 5

routes = router("runs")


@routes.post(
    "/runs/{run_id}/cancel",
    operation_id="cancel_run",
    summary="End a run",
    response_model=schemas.Run,
    responses=problems(404, 409),
)
async def cancel_run(deps: Deps, reader: Reading, run_id: RunId) -> Response:
    """Its open trials end cancelled. Cancelling a cancelled run changes nothing."""
    await _steer(deps, reader, run_id, "cancelled")
    return answer(await run_with_steps(reader, run_id))


@routes.post(
    "/runs/{run_id}/pause",
    operation_id="pause_run",
    summary="Claim nothing new for a run",
    response_model=schemas.Run,
    responses=problems(404, 409),
)
async def pause_run(deps: Deps, reader: Reading, run_id: RunId) -> Response:
    """What is in flight still records. Pausing a paused run changes nothing."""
    await _steer(deps, reader, run_id, "paused")
    return answer(await run_with_steps(reader, run_id))


@routes.post(
    "/runs/{run_id}/resume",
    operation_id="resume_run",
    summary="Go on with a paused run",
    response_model=schemas.Run,
    responses=problems(404, 409),
)
async def resume_run(deps: Deps, reader: Reading, run_id: RunId) -> Response:
    """Its unfinished work is offered again. Resuming a running run changes nothing."""
    await _steer(deps, reader, run_id, "running")
    return answer(await run_with_steps(reader, run_id))


async def _steer(
    deps: ApiDependencies,
    reader: Reader,
    run_id: str,
    wanted: Literal["cancelled", "paused", "running"],
) -> None:
    """Append the fact that takes a run to a state, unless it is there.

    The fact's slot decides between callers that race: a loser looks again at what became of it.
    """
    run = await reader.run(run_id)
    partition = (await deps.runs.get(run_id)).partition
    for _ in range(_TRIES):
        if run["state"] == wanted:
            return
        if run["state"] in RUN_ENDED:
            detail = f"run {run_id} is {run['state']}"
            raise ProblemError(409, "run-ended", "The run has ended", detail)
        match wanted:
            case "cancelled":
                fact = ev.RunCancelled()
            case "paused":
                fact = ev.RunPaused(run["pauses"])
            case "running":
                fact = ev.RunResumed(run["pauses"] - 1)
        verdict = await deps.log.commit(Append([new_event(run_id, fact, partition=partition)]))
        run = await reader.run(run_id)
        # Recorded after the run's end, a pause means nothing: the next round says so.
        if verdict.ok and run["state"] not in RUN_ENDED:
            return
    raise ProblemError(409, "contended", "The run's state keeps changing", "try again")
