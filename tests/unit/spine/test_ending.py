"""A process that is told to end does so, also when Postgres is away."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

from trialog.spine.database import Database
from trialog.spine.log import Renew
from trialog.spine.postgres.log import PostgresLog


async def test_closing_the_log_does_not_wait_for_postgres_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    database = Database(f"postgresql://u:p@127.0.0.1:{port}/db")
    log = PostgresLog(database, 7)
    writing = asyncio.create_task(log.commit(Renew("a/b/generate", 1, 1000)))
    await asyncio.sleep(0)
    began = time.monotonic()
    await log.close(patience_s=0.05)
    assert time.monotonic() - began < 5
    assert not writing.done()
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    await database.dispose()
