"""Dead letters: work that was given up because its message could not be handled.

Whether work is dead stands in its row; why, and since when, in the fact that came with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import asyncpg
from fastapi import Query, Response

from trialog.driver import queries
from trialog.driver.api import schemas
from trialog.driver.api.dependencies import ApiDependencies, Deps
from trialog.driver.api.problems import ProblemError, invalid, not_found
from trialog.driver.api.routing import (
    Cursor,
    Limit,
    answer,
    bad_cursor,
    cursor_of,
    parts_of,
    problems,
    router,
)
from trialog.driver.views import Doc, timestamp
from trialog.proto import events as ev
from trialog.proto import ids
from trialog.proto.slots import slot_of
from trialog.spine.consumer import MAX_BREAKDOWNS
from trialog.spine.log import Recorded
from trialog.spine.sql import driver_connection

_KEY: Final = re.compile(schemas.WORK_KEY_PATTERN)

routes = router("operations")

RunFilter = Annotated[str | None, Query(description="Only of this run.", examples=[schemas.RUN_ID])]


@routes.get(
    "/dead-letters",
    operation_id="list_dead_letters",
    summary="List work that was given up",
    response_model=schemas.DeadLetterPage,
    responses=problems(422),
)
async def list_dead_letters(
    deps: Deps, run: RunFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """A page of work whose message could not be handled, in order of its keys."""
    if run is not None:
        _check_run(run)
    after = "" if cursor is None else _seen(cursor)
    rows = await _fetch(deps, queries.DEAD_LETTERS, run, after, limit + 1)
    page = rows[:limit]
    last = cursor_of(page[-1]["key"]) if len(rows) > limit else None
    return answer({"dead_letters": await _shown(deps, page), "next_cursor": last})


def _check_run(run_id: str) -> None:
    try:
        ids.check_run_id(run_id)
    except ids.InvalidIdError as error:
        raise invalid([("run", str(error))]) from None


def _seen(cursor: str) -> str:
    (key,) = parts_of(cursor, 1)
    if not _KEY.fullmatch(key):
        raise bad_cursor()
    return key


async def _shown(deps: ApiDependencies, rows: Sequence[asyncpg.Record]) -> list[Doc]:
    """Return dead work with what the fact of its death says."""
    names = [ids.event_id(row["run_id"], _slot(row)) for row in rows]
    found = await _fetch(deps, queries.EVENTS, names)
    events = {event.event_id: event for event in (Recorded(*row) for row in found)}
    shown: list[Doc] = []
    for row, name in zip(rows, names, strict=True):
        event = events.get(name)
        fact = event.fact() if event is not None else None
        shown.append(
            {
                "key": row["key"],
                "kind": row["kind"],
                "run_id": row["run_id"],
                "error": fact.error if isinstance(fact, ev.DeliveryDeadLettered) else None,
                "deliveries": row["breakdowns"],
                "dead_since": timestamp(event.recorded_at) if event is not None else None,
            }
        )
    return shown


def _slot(row: asyncpg.Record) -> str:
    """Return the slot of the fact that says so: it counts how often the work was given up."""
    count: int = row["breakdowns"]
    n = count // MAX_BREAKDOWNS - 1
    return slot_of(ev.DeliveryDeadLettered(row["key"], row["kind"], n, count, ""))


@routes.post(
    "/dead-letters/redrive",
    operation_id="redrive",
    summary="Offer dead work again",
    status_code=202,
    response_model=schemas.Redriven,
    responses=problems(400, 404, 409, 413, 422),
)
async def redrive(deps: Deps, wanted: schemas.Redrive) -> Response:
    """Workers are offered it within a few seconds, a paused run's once the run is resumed."""
    work = await _work(deps, wanted.key)
    if work["dead"] and work["run_state"] != "ended":
        await deps.log.reopen([wanted.key])
        work = await _work(deps, wanted.key)
    if not work["reoffer"]:
        raise _alive(wanted.key, work)
    run = {"run_id": work["run_id"], "run_state": work["run_state"]}
    return answer({"key": wanted.key} | run, 202)


async def _work(deps: ApiDependencies, key: str) -> asyncpg.Record:
    rows = await _fetch(deps, queries.WORK, key)
    if not rows:
        raise not_found("work", f"there is no work {key}")
    return rows[0]


def _alive(key: str, work: asyncpg.Record) -> ProblemError:
    if work["run_state"] == "ended":
        detail = f"run {work['run_id']} has ended: nobody needs its work any more"
        return ProblemError(409, "run-ended", "The run has ended", detail)
    state = "done" if work["done"] else "no longer needed" if work["closed"] else "open"
    return ProblemError(409, "not-dead", "The work is not dead", f"{key} is {state}")


async def _fetch(deps: ApiDependencies, query: str, *arguments: Any) -> list[asyncpg.Record]:
    async with driver_connection(deps.engine) as connection:
        return await connection.fetch(query, *arguments)
