"""Forking a run: a new run that takes over what its ancestors have and executes the rest."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Query, Request, Response
from msgspec.structs import replace

from trialog.driver.api import asking, rubric_names, schemas, task_runs
from trialog.driver.api.code import code_for
from trialog.driver.api.dependencies import ApiDependencies, Deps, Reading
from trialog.driver.api.fork_schemas import Plan
from trialog.driver.api.problems import invalid
from trialog.driver.api.reader import Reader
from trialog.driver.api.routing import PatientRoute, RunId, allow_longer, answer, problems, router
from trialog.driver.forking import (
    Ancestor,
    ForkRefusedError,
    Mode,
    check,
    kept_mode,
    merged,
    request_of,
    split,
)
from trialog.driver.planning import planned
from trialog.proto.canonical import bytes_digest
from trialog.proto.policy import first_weights
from trialog.spine.log import new_event

_TITLE = "Invalid fork"
_SAID = f"With dry_run: the plan, and nothing is recorded. Else: {asking.THERE}"

routes = router("runs", PatientRoute)

_BODY = {
    "requestBody": {
        "required": False,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "description": "Settings of RunSpec that differ, mappings merged.",
                    "properties": {"from_step": {"type": "integer", "minimum": 0}},
                },
                "examples": {
                    "unchanged": {"summary": "The same run again", "value": {}},
                    "longer": {"summary": "Train on", "value": {"n_steps": 6}},
                    "branch": {
                        "summary": "Another learning rate from step 2 on",
                        "value": {"from_step": 2, "lr": 1.0, "labels": {"branch": "slow"}},
                    },
                },
            }
        },
    }
}


@routes.post(
    "/runs/{run_id}/fork",
    operation_id="fork_run",
    summary="Fork a run",
    status_code=201,
    response_model=schemas.Run,
    responses=problems(400, 404, 409, 413, 415, 422)
    | {200: {"model": schemas.Run | Plan, "description": _SAID}},
    openapi_extra=_BODY,
)
async def fork_run(
    request: Request,
    deps: Deps,
    reader: Reading,
    run_id: RunId,
    rubric: Annotated[
        str | None, Query(max_length=100, description="Name of the fork's rubric.")
    ] = None,
    mode: Annotated[
        Mode | None,
        Query(
            description="recompute: judgments and training follow, and with them later steps. "
            "rescore: judge the parent's trajectories anew, train nothing. Default: the parent's."
        ),
    ] = None,
    dry_run: Annotated[
        bool, Query(description="Only say what would be executed and what that would cost.")
    ] = False,
    idempotency_key: asking.IdempotencyKey = None,
) -> Response:
    """The body may change any setting of a run, mapping by mapping, and give ``from_step``: the
    steps below it stand as they are. What is not changed is inherited; only what is not on the
    ancestors' log under the same inputs is executed."""
    overrides = await _overrides_of(request, rubric)
    if "tasks" in overrides:
        allow_longer(request, task_runs.PATIENCE)
    parent = await _ancestor(deps, reader, run_id)
    sent = asking.digest_of({"fork": run_id, "mode": mode, "settings": overrides})
    new_id = asking.new_run_id(idempotency_key)
    if not dry_run:
        there = await asking.there_already(deps, reader, new_id, idempotency_key, sent)
        if there is not None:
            return there
    asked = await _asked(deps, parent, overrides, mode, new_id, sent)
    if not dry_run:
        return await asking.record(deps, reader, asked)
    new_event(asked.run_id, asked.fact)  # refused as the fork itself would be, when it is too large
    plan = await planned(deps.log, deps.blobs, asked.partition, asked.fact)
    about = {
        "dry_run": True,
        "parent": run_id,
        "position": parent.position,
        "mode": asked.fact.mode,
        "from_step": asked.fact.from_step,
    }
    return answer(about | plan)


async def _asked(
    deps: ApiDependencies,
    parent: Ancestor,
    overrides: dict[str, Any],
    wanted: Mode | None,
    run_id: str,
    sent: str,
) -> asking.Asked:
    """Return the fork as it is to be recorded, or raise a problem that names what is wrong."""
    mode = wanted or kept_mode(parent)
    try:
        settings, from_step = split(overrides)
        check(parent, settings, from_step, mode)
        settings = await rubric_names.resolve_in(deps.engine, settings, _TITLE)
        settings = await task_runs.resolve_fork(deps, parent, settings, from_step, mode, _TITLE)
        spec = asking.validated(merged(parent, settings, mode))
        weights = await asyncio.to_thread(first_weights, spec)
        code = await code_for(deps, spec)
        fact = request_of(parent, spec, code, bytes_digest(weights), from_step, mode)
        fact = replace(fact, asked=sent)
    except ForkRefusedError as error:
        raise invalid(error.errors, _TITLE) from None
    partition = (await deps.runs.get(parent.run_id)).partition
    return asking.Asked(run_id, fact, weights, partition)


async def _overrides_of(request: Request, rubric: str | None) -> dict[str, Any]:
    """Return the body's settings, with the rubric that the address names."""
    overrides: dict[str, Any] = {}
    if await request.body():
        overrides = asking.read(await asking.body_of(request))
    if rubric is not None:
        if "rubric" in overrides:
            raise invalid([("rubric", "is in the address and in the body: give it once")])
        overrides["rubric"] = rubric
    return overrides


async def _ancestor(deps: ApiDependencies, reader: Reader, run_id: str) -> Ancestor:
    """Return the run that is forked as it is now. Raises a 404 problem."""
    run = await reader.run(run_id)
    known = await deps.runs.get(run_id)
    begun = run["steps_applied"]
    if run["current_step"] is not None:
        begun = max(begun, run["current_step"] + 1)
    # Read after the run's document: what that counts is at or below it.
    position = await deps.log.end(known.partition)
    # The budget is the one in force: a resume may have changed it.
    spec = known.request.spec | {"budget": run["budget"]["limits"]}
    request = replace(known.request, spec=spec)
    return Ancestor(run_id, request, run["steps_applied"], begun, position)
