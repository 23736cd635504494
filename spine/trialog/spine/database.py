"""Connections to Postgres: a pool for each process, and direct ones for locks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg

_T = TypeVar("_T")
_PATIENCE_S = 30.0
_RETRY_S = 0.1
_ACQUIRE_S = 30.0

# What a connection raises that is of no more use.
BROKEN = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that broke between two of the client's steps
    asyncpg.OperatorInterventionError,
)
# What a dead, restarting or overloaded database raises, and a batch that collided with another:
# nothing was written, or it is safe to send again.
DOWN = (
    *BROKEN,
    asyncio.TimeoutError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidCatalogNameError,
)
# Every statement of ours looks rows up by an index. A plan that is kept from the days of an empty
# table must not read all of a full one.
SESSION = {"enable_seqscan": "off"}


class Database:
    """A pool of connections, made when first used. Each statement is its own transaction.

    The connection used last is used next: its prepared statements and the functions' plans are
    warm.
    """

    def __init__(self, url: str, *, size: int = 10) -> None:
        self.url = url
        self._size = size
        self._pool: asyncpg.Pool | None = None
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[asyncpg.Connection]:
        """Take a connection from the pool. Raises DOWN."""
        pool = self._pool or await self._open()
        async with pool.acquire(timeout=_ACQUIRE_S) as connection:
            yield connection  # type: ignore[misc]  # a proxy with all of a connection's methods

    async def fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run one statement and return its rows. Raises DOWN."""
        async with self.connection() as connection:
            return await connection.fetch(query, *arguments)

    async def _open(self) -> asyncpg.Pool:
        async with self._lock:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self.url,
                    min_size=0,
                    max_size=self._size,
                    server_settings=SESSION,
                    reset=_keep,
                )
            return self._pool

    async def dispose(self) -> None:
        """Close what is idle and, soon, the rest."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None


async def _keep(_: asyncpg.Connection) -> None:
    """Leave a returned connection as it is: nobody sets anything, and a reset is a round trip."""


async def patiently(attempt: Callable[[], Awaitable[_T]], patience_s: float = _PATIENCE_S) -> _T:
    """Return what a read returns, waiting out a restart of Postgres; raises DOWN after that.

    For what work in progress needs: a restart must not look like a failed attempt.
    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + patience_s
    while True:
        try:
            return await attempt()
        except DOWN as error:
            if loop.time() > give_up_at or isinstance(error, ValueError):
                raise
            await asyncio.sleep(_RETRY_S)


async def connect(url: str, **settings: Any) -> asyncpg.Connection:
    """Return one direct connection, for what must not pass through a pool."""
    return await asyncpg.connect(url, **settings)
