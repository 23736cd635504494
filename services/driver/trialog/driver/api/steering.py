"""Steering a run: cancel, pause, resume."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import Request, Response

from trialog.driver.api import bodies, schemas
from trialog.driver.api.budget_schemas import Resumption
from trialog.driver.api.dependencies import ApiDependencies, Deps, Reading
from trialog.driver.api.problems import ProblemError
from trialog.driver.api.reader import Reader
from trialog.driver.api.routing import RunId, answer, problems, router
from trialog.driver.api.steps import run_with_steps
from trialog.driver.views import RUN_ENDED, Doc
from trialog.proto import events as ev
from trialog.spine.log import Append, new_event

_TRIES = 5
_RESUMPTION = {
    "requestBody": {
        "required": False,
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/Resumption"},
                "examples": {
                    "more": {"summary": "More money", "value": {"budget": {"usd": 2.5}}},
                    "lifted": {
                        "summary": "As many calls as it takes",
                        "value": {"budget": {"judge_calls": None}},
                    },
                },
            }
        },
    }
}

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
    responses=problems(400, 404, 409, 413, 415, 422),
    openapi_extra=_RESUMPTION,
)
async def resume_run(request: Request, deps: Deps, reader: Reading, run_id: RunId) -> Response:
    """Its unfinished work is offered again, under another budget where the body holds one. Resuming
    a running run changes nothing; its budget can change only as it is resumed."""
    await _steer(deps, reader, run_id, "running", await _changes(request))
    return answer(await run_with_steps(reader, run_id))


async def _changes(request: Request) -> dict[str, Any]:
    """Return the limits that a resumption sets, of those that there are; raises a problem."""
    if not await request.body():
        return {}
    text = await bodies.body_of(request, "Invalid resumption")
    wanted = bodies.validated(Resumption, text, "Invalid resumption")
    return wanted.budget.model_dump(mode="json", exclude_unset=True)


async def _steer(
    deps: ApiDependencies,
    reader: Reader,
    run_id: str,
    wanted: Literal["cancelled", "paused", "running"],
    limits: dict[str, Any] | None = None,
) -> None:
    """Append the fact that takes a run to a state, unless it is there.

    The fact's slot decides between callers that race: a loser looks again at what became of it.
    """
    run = await reader.run(run_id)
    partition = (await deps.runs.get(run_id)).partition
    for _ in range(_TRIES):
        changed = _changed(run, limits)
        if run["state"] == wanted:
            if changed is not None:
                raise _only_on_resume(run_id)
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
                fact = ev.RunResumed(run["pauses"] - 1, changed)
        verdict = await deps.log.commit(Append([new_event(run_id, fact, partition=partition)]))
        run = await reader.run(run_id)
        # Recorded after the run's end, a pause means nothing: the next round says so.
        if verdict.ok and run["state"] not in RUN_ENDED:
            return
    raise ProblemError(409, "contended", "The run's state keeps changing", "try again")


def _changed(run: Doc, limits: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a run's limits as they would be, None when they are so already."""
    now = run["budget"]["limits"]
    then = now | (limits or {})
    return None if then == now else then


def _only_on_resume(run_id: str) -> ProblemError:
    detail = f"run {run_id} is running: pause it, then resume it with another budget"
    return ProblemError(
        409, "running", "A budget changes on resume", detail, errors=[("budget", detail)]
    )
