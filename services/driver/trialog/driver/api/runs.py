"""Runs: ask for one, list them, look at one."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from fastapi import Query, Request, Response

from trialog.driver.api import asking, rubric_names, schemas, task_runs
from trialog.driver.api.code import code_for
from trialog.driver.api.dependencies import Deps, Reading
from trialog.driver.api.problems import invalid
from trialog.driver.api.routing import (
    Cursor,
    Limit,
    RunId,
    allow_longer,
    answer,
    bad_cursor,
    cursor_of,
    parts_of,
    problems,
    router,
)
from trialog.driver.api.steps import run_with_steps
from trialog.driver.views import Doc, timestamp
from trialog.proto import events as ev
from trialog.proto.canonical import bytes_digest
from trialog.proto.policy import first_weights
from trialog.proto.tasks.defaults import is_of_tasks

_PARTITION = 0

routes = router("runs")

_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/RunSpec"},
                "examples": {
                    "reference": {"summary": "The reference run", "value": {}},
                    "faults": {
                        "summary": "A run that is disturbed",
                        "value": {
                            "n_steps": 3,
                            "faults": {"flaky_trial_rate": 0.25, "judge_flake_rate": 0.3},
                            "labels": {"team": "a"},
                        },
                    },
                    "rubric": {
                        "summary": "A run that is judged by a rubric's first version",
                        "value": {"rubric": "v1@1"},
                    },
                    "tasks": {
                        "summary": "A run of the tasks below a folder, without training",
                        "value": {
                            "tasks": {"path": "/srv/tasks"},
                            "agent": "oracle",
                            "learner": "none",
                        },
                    },
                },
            }
        },
    }
}


@routes.post(
    "/runs",
    operation_id="create_run",
    summary="Ask for a run",
    status_code=201,
    response_model=schemas.Run,
    responses=problems(400, 409, 413, 415, 422)
    | {200: {"model": schemas.Run, "description": asking.THERE}},
    openapi_extra=_BODY,
)
async def create_run(
    request: Request, deps: Deps, reader: Reading, idempotency_key: asking.IdempotencyKey = None
) -> Response:
    """Record a run; the driver begins with it at once."""
    given = asking.read(await asking.body_of(request))
    run_id, asked = asking.new_run_id(idempotency_key), asking.digest_of(given)
    there = await asking.there_already(deps, reader, run_id, idempotency_key, asked)
    if there is not None:
        return there
    settings = await rubric_names.resolve_in(deps.engine, given, asking.TITLE)
    if is_of_tasks(settings):
        allow_longer(request, task_runs.PATIENCE)
    settings = await task_runs.resolve_in(deps, settings, asking.TITLE)
    spec = asking.validated(json.dumps(settings))
    weights = await asyncio.to_thread(first_weights, spec)
    code = await code_for(deps, spec)
    fact = ev.RunRequested(spec.recorded(), run_id, bytes_digest(weights), code=code, asked=asked)
    return await asking.record(deps, reader, asking.Asked(run_id, fact, weights, _PARTITION))


@routes.get(
    "/runs",
    operation_id="list_runs",
    summary="List runs, newest first",
    response_model=schemas.RunPage,
    responses=problems(422),
)
async def list_runs(
    reader: Reading,
    state: schemas.RunState | None = None,
    label: Annotated[
        list[str] | None,
        Query(max_length=32, description="KEY=VALUE; given more than once, all must match."),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """A page of runs. A run that has just been created may take a moment to show."""
    rows = await reader.run_page(state, _labels(label or []), _seen(cursor), limit + 1)
    more = len(rows) > limit
    runs = [_summary(row) for row in rows[:limit]]
    last = cursor_of(runs[-1]["created_at"], runs[-1]["run_id"]) if more else None
    return answer({"runs": runs, "next_cursor": last})


def _labels(given: list[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    if any(not key or not equals or "\0" in key + value for key, equals, value in pairs):
        raise invalid([("label", "expected KEY=VALUE, such as team=a")])
    return {key: value for key, _, value in pairs}


def _seen(cursor: str | None) -> tuple[datetime, str] | None:
    if cursor is None:
        return None
    at, run_id = parts_of(cursor, 2)
    try:
        seen = datetime.fromisoformat(at)
        if seen.tzinfo is None or "\0" in run_id:
            raise bad_cursor()
        # What is beyond the years 1 to 9999 in UTC overflows, here and in the database's driver.
        return seen.astimezone(UTC), run_id
    except (ValueError, OverflowError):
        raise bad_cursor() from None


def _summary(row: Any) -> Doc:
    return dict(row) | {
        "created_at": timestamp(row["created_at"]),
        "labels": msgspec.Raw(row["labels"].encode()),
    }


@routes.get(
    "/runs/{run_id}",
    operation_id="get_run",
    summary="Look at a run",
    response_model=schemas.Run,
    responses=problems(404),
)
async def get_run(reader: Reading, run_id: RunId) -> Response:
    """A run as it is on the log now, with its first thousand steps; ``steps_cursor`` leads to
    those beyond."""
    return answer(await run_with_steps(reader, run_id))
