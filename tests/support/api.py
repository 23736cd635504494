"""The driver's API on a free port, over the session's Postgres and NATS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx
from trialog.driver.api import ApiDependencies, create_app, run_api
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.bus import Bus
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.runs import Runs


@dataclass
class Api:
    """A served API: a client of it, and what ends it."""

    client: httpx.AsyncClient
    url: str
    stopping: asyncio.Event
    serving: asyncio.Task[None]


@contextlib.asynccontextmanager
async def serve_api(
    log: PostgresLog, blobs: PostgresBlobs, bus: Bus | None, **settings: Any
) -> AsyncGenerator[Api]:
    """Serve the API; settings are those of ApiDependencies."""
    known: dict[str, Any] = {"is_ready": lambda: True, "runs": Runs(log)}
    known |= {"log": log, "engine": log.engine, "blobs": blobs, "bus": bus}
    app = create_app(ApiDependencies(**known | settings))
    stopping = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(run_api(app, "127.0.0.1", 0, stopping, port.set_result))
    url = f"http://127.0.0.1:{await port}"
    # The port is bound but not open until uvicorn listens.
    transport = httpx.AsyncHTTPTransport(retries=5)
    async with httpx.AsyncClient(base_url=url, transport=transport, timeout=20) as client:
        yield Api(client, url, stopping, serving)
        stopping.set()
        await serving
