"""Health, metrics, and looking at the system itself."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from trialog.driver.api import schemas
from trialog.driver.api.dependencies import Deps, Reading
from trialog.driver.api.problems import unavailable
from trialog.driver.api.routing import answer, problems, router
from trialog.driver.views import timestamp

_PARTITION = 0
_MOST_LINKS = 100_000

routes = router("operations")

Position = Annotated[int, Query(ge=0, le=2**63 - 1)]


@routes.get("/livez", operation_id="livez", summary="Alive?", response_model=schemas.Health)
async def livez() -> Response:
    """The process answers; asks for no API key."""
    return answer({"status": "ok"})


@routes.get(
    "/readyz",
    operation_id="readyz",
    summary="Ready?",
    response_model=schemas.Health,
    responses=problems(503),
)
async def readyz(deps: Deps) -> Response:
    """The driver follows the log; asks for no API key."""
    if not deps.is_ready():
        raise unavailable("the driver does not follow the log yet")
    return answer({"status": "ready"})


@routes.get(
    "/metrics",
    operation_id="metrics",
    summary="Prometheus metrics of this process",
    response_class=Response,
    responses=problems()
    | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Samples."}},
)
async def metrics() -> Response:
    """In the text format."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


@routes.get(
    "/log/verify",
    operation_id="verify_log",
    summary="Walk the log's hash chain",
    response_model=schemas.Verification,
    responses=problems(422),
)
async def verify_log(deps: Deps, after: Position = 0, until: Position | None = None) -> Response:
    """Check the links above ``after``, a hundred thousand at most: ask on from checked_until."""
    end = await deps.log.end(_PARTITION)
    until = min(end if until is None else until, end, after + _MOST_LINKS)
    broken = await deps.log.broken_link(_PARTITION, after, until)
    return answer({"broken_at": broken, "checked_until": max(until, after)})


@routes.get(
    "/processes",
    operation_id="list_processes",
    summary="List the processes that are there",
    response_model=schemas.Processes,
    responses=problems(),
)
async def list_processes(reader: Reading) -> Response:
    """Processes that hold the lock of their incarnation, oldest first."""
    processes = [
        {
            "worker": f"{row['service']}-{row['incarnation']:x}",
            "service": row["service"],
            "host": row["host"],
            "pid": row["pid"],
            "registered_at": timestamp(row["registered_at"]),
        }
        for row in await reader.processes()
    ]
    return answer({"processes": processes})
