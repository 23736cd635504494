"""The driver's API on a free port, over the session's Postgres and NATS."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx
from trialog.driver.api import ApiDependencies, create_app, run_api
from trialog.driver.projector import Projector
from trialog.proto import events as ev
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.bus import Bus
from trialog.spine.log import Append, new_event
from trialog.spine.postgres import queries
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.runs import Runs
from trialog.spine.sql import engine_for


@dataclass
class Api:
    """A served API: a client of it, and what ends it."""

    client: httpx.AsyncClient
    url: str
    stopping: asyncio.Event
    serving: asyncio.Task[None]


@contextlib.asynccontextmanager
async def serve_api(
    log: PostgresLog, blobs: PostgresBlobs, bus: Bus | None, *, port: int = 0, **settings: Any
) -> AsyncGenerator[Api]:
    """Serve the API; settings are those of ApiDependencies."""
    engine = engine_for(log.database.url)
    known: dict[str, Any] = {"is_ready": lambda: True, "runs": Runs(log, blobs=blobs)}
    known |= {"log": log, "engine": engine, "blobs": blobs, "bus": bus}
    app = create_app(ApiDependencies(**known | settings))
    stopping = asyncio.Event()
    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(run_api(app, "127.0.0.1", port, stopping, bound.set_result))
    url = f"http://127.0.0.1:{await bound}"
    # The port is bound but not open until uvicorn listens.
    transport = httpx.AsyncHTTPTransport(retries=5)
    async with httpx.AsyncClient(base_url=url, transport=transport, timeout=20) as client:
        yield Api(client, url, stopping, serving)
        stopping.set()
        await serving
    await engine.dispose()


async def own(log: PostgresLog) -> int:
    """Take partition 0, whoever had it, and return the fence."""
    async with log.database.connection() as connection:
        owner = await connection.fetchrow(queries.OWNER, 0)
        assert owner is not None
        fence = await connection.fetchval(
            queries.OWN_PARTITION, 0, log.incarnation, 60_000, owner[0]
        )
    assert isinstance(fence, int)
    return fence


async def project_all(log: PostgresLog) -> None:
    """Do once what a leading driver does all the time."""
    fence = await own(log)
    projector = Projector(log, 0)
    while events := await log.read(0, await projector.cursor(), 1000):
        await projector.apply(events, fence)


def key() -> dict[str, str]:
    """Return a header with a key that nobody has used."""
    return {"Idempotency-Key": os.urandom(8).hex()}


async def created(api: httpx.AsyncClient, **settings: Any) -> Any:
    """Ask for a run and return it."""
    answer = await api.post("/runs", json=settings)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def append(log: PostgresLog, run_id: str, *facts: ev.Fact) -> None:
    """Put facts of a run on the log."""
    (await log.commit(Append([new_event(run_id, fact) for fact in facts]))).check()
