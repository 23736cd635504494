"""Runs: ask for one, list them, look at one."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from fastapi import Header, Query, Request, Response
from pydantic import ValidationError

from trialog.driver.api import schemas
from trialog.driver.api.bodies import mistakes
from trialog.driver.api.dependencies import Deps, Reading
from trialog.driver.api.problems import ProblemError, broken_json, invalid
from trialog.driver.api.routing import (
    Cursor,
    Limit,
    RunId,
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
from trialog.proto.ids import run_id_from
from trialog.proto.policy import initial_weights
from trialog.proto.runspec import RunSpec
from trialog.spine.log import Append, new_event

_PARTITION = 0

routes = router("runs")

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        description="Sent again with the same body, the same key answers the same run.",
        examples=["nightly-2026-11-30"],
    ),
]
# Of requests with one key that race, each that did not find the run answers 201: the log says where
# a fact stands, not who was first to say it.
_THERE = (
    "This key's run, found there already. Sent at once by many, several may answer 201: either "
    "way it is the one run of the key."
)
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
    | {200: {"model": schemas.Run, "description": _THERE}},
    openapi_extra=_BODY,
)
async def create_run(
    request: Request, deps: Deps, reader: Reading, idempotency_key: IdempotencyKey = None
) -> Response:
    """Record a run; the driver begins with it at once."""
    spec = await _spec_of(request)
    entropy = os.urandom(32) if idempotency_key is None else b"key:" + idempotency_key.encode()
    run_id = run_id_from(entropy)
    weights = await asyncio.to_thread(initial_weights, spec.n_worlds)
    fact = ev.RunRequested(spec.recorded(), run_id, bytes_digest(weights))
    event = new_event(run_id, fact, partition=_PARTITION)
    there = await deps.log.at_slot(run_id, "run") if idempotency_key else None
    if there is not None and there.data != event.data:
        raise _other_body()
    if there is None:
        await deps.blobs.put(weights)
        verdict = await deps.log.commit(Append([event]))
        if verdict.answer == "different":
            raise _other_body()
        verdict.check()
    run = await run_with_steps(reader, run_id)
    return answer(run, 201 if there is None else 200, {"Location": f"/runs/{run_id}"})


def _other_body() -> ProblemError:
    detail = "this Idempotency-Key was sent with another body before"
    errors = [("Idempotency-Key", detail)]
    return ProblemError(409, "key-reused", "Idempotency-Key reused", detail, errors=errors)


async def _spec_of(request: Request) -> RunSpec:
    """Return the body as a RunSpec, or raise a problem that names what is wrong."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        detail = f"the content type must be application/json, not {kind or 'missing'}"
        raise ProblemError(415, "unsupported-media-type", "Unsupported media type", detail)
    body = await request.body()
    if wrong := mistakes(body):
        raise invalid(wrong, "Invalid run")
    try:
        # From the text: a spec is strict, and strict about JSON is not strict about Python.
        return RunSpec.model_validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        raise broken_json(found[0]["msg"].removeprefix("Invalid JSON: "))
    raise invalid([_named(one["loc"], one["msg"]) for one in found], "Invalid run")


def _named(place: tuple[int | str, ...], message: str) -> tuple[str, str]:
    """Return the dotted path of a wrong field with what is wrong; a rule that spans fields begins
    its message with the name of one."""
    message = message.removeprefix("Value error, ")
    parts = [str(part) for part in place if part != "[key]"]
    if parts[:1] == ["rubric"]:
        del parts[1:2]  # which of the two it is, a name or a whole one
    if not parts:
        first = message.partition(" ")[0]
        parts = [first] if first.partition(".")[0] in RunSpec.model_fields else []
    return ".".join(parts), message


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
