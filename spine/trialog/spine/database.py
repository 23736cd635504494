"""Connections to Postgres: one pooled engine a process, and direct ones for locks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import exc
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

_T = TypeVar("_T")
_PATIENCE_S = 30.0
_RETRY_S = 0.1

# What a dead, restarting or overloaded database raises, and a batch that collided with another:
# nothing was written, or it is safe to send again.
DOWN = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidCatalogNameError,
    exc.OperationalError,
    exc.InterfaceError,
    exc.DBAPIError,
)


def async_url(url: str) -> str:
    """Return the URL with SQLAlchemy's asyncpg driver named."""
    return make_url(url).set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)


def engine_for(url: str, *, pool_size: int = 5) -> AsyncEngine:
    """Return a pooled engine whose statements are each their own transaction.

    The connection used last is used next: its prepared statements and the functions' plans are
    warm. Connections are not pinged when taken, which costs three round trips a statement; one
    that turns out to be broken takes the idle others with it (driver_connection).
    """
    return create_async_engine(
        async_url(url),
        pool_size=pool_size,
        max_overflow=5,
        pool_timeout=30,
        pool_use_lifo=True,
        pool_reset_on_return=None,
        isolation_level="AUTOCOMMIT",
        # Every statement of ours looks rows up by an index. A plan that is kept from the days of
        # an empty table must not read all of a full one.
        connect_args={"server_settings": {"enable_seqscan": "off"}},
    )


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


@asynccontextmanager
async def driver_connection(engine: AsyncEngine) -> AsyncGenerator[asyncpg.Connection]:
    """Take asyncpg's own connection from the pool: arrays go and come in binary, unwrapped.

    Each statement is its own transaction. A connection that broke is not given back, and the idle
    ones of the pool go with it: what broke it was most likely the server's end.
    """
    async with engine.connect() as pooled:
        raw = await pooled.get_raw_connection()
        connection = raw.driver_connection
        assert connection is not None
        try:
            yield connection
        except (
            OSError,
            asyncpg.PostgresConnectionError,
            asyncpg.InterfaceError,
            asyncpg.OperatorInterventionError,
        ):
            await pooled.invalidate()
            await engine.dispose()
            raise


async def connect(url: str, **settings: Any) -> asyncpg.Connection:
    """Return one direct connection, for what must not pass through a pool."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return await asyncpg.connect(plain, **settings)
