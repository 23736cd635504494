"""What the tests of the API share."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx
import pytest
from support.api import serve_api
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.bus import Bus
from trialog.spine.postgres.log import PostgresLog


@pytest.fixture
async def api(
    log: PostgresLog, blobs: PostgresBlobs, bus: Bus
) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of the API over the session's Postgres and NATS."""
    async with serve_api(log, blobs, bus) as served:
        yield served.client
