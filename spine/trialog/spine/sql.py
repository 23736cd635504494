"""Postgres through SQLAlchemy: for migrations, and for the API's reads in a pool of their own.

SQLAlchemy takes half of a service's start to import, so what a crashed driver needs to go on does
not use it (trialog.spine.database).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

import asyncpg
from sqlalchemy import exc
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from trialog.spine.database import BROKEN, SESSION


def async_url(url: str) -> str:
    """Return the URL with SQLAlchemy's asyncpg driver named."""
    return make_url(url).set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)


# Turns at an engine's connections. Nobody waits within SQLAlchemy's pool: a waiter that is
# cancelled there as its turn comes loses the connection for good (wait_for of Python 3.11).
_turns: WeakKeyDictionary[AsyncEngine, asyncio.Semaphore] = WeakKeyDictionary()


def engine_for(url: str, *, pool_size: int = 10) -> AsyncEngine:
    """Return a pooled engine whose statements are each their own transaction.

    The connection used last is used next: its prepared statements are warm. Connections are not
    pinged when taken, which costs three round trips a statement; one that turns out to be broken
    takes the idle others with it (driver_connection).
    """
    engine = create_async_engine(
        async_url(url),
        pool_size=pool_size,
        max_overflow=0,
        pool_use_lifo=True,
        pool_reset_on_return=None,
        isolation_level="AUTOCOMMIT",
        connect_args={"server_settings": SESSION},
    )
    _turns[engine] = asyncio.Semaphore(pool_size)
    return engine


@asynccontextmanager
async def driver_connection(engine: AsyncEngine) -> AsyncGenerator[asyncpg.Connection]:
    """Take asyncpg's own connection from the engine's pool: arrays go and come in binary.

    A connection that broke is not given back, and the idle ones go with it: what broke it was most
    likely the server's end. Raises database.DOWN.
    """
    try:
        async with _turns[engine], engine.connect() as pooled:
            raw = await pooled.get_raw_connection()
            connection = raw.driver_connection
            assert connection is not None
            try:
                yield connection
            except BROKEN:
                await pooled.invalidate()
                await engine.dispose()
                raise
    except (exc.DBAPIError, exc.TimeoutError) as error:
        raise ConnectionError(str(error)) from error
