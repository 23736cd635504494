"""Both of each port: in memory and real."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from support.logs import Ledger, MemoryLedger, PostgresLedger, postgres_ledger
from support.stack import StackThread


@pytest_asyncio.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.stack)])
async def ledger(request: pytest.FixtureRequest) -> AsyncGenerator[Ledger]:
    """A log's partition of its own, in memory and in Postgres."""
    if request.param == "memory":
        yield MemoryLedger()
        return
    async for found in postgres_ledger(request.getfixturevalue("stack")):
        yield found


@pytest_asyncio.fixture
async def real_ledger(stack: StackThread) -> AsyncGenerator[PostgresLedger]:
    """Only the real one, for what memory cannot suffer."""
    async for found in postgres_ledger(stack):
        yield found
