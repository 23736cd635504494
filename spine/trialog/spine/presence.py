"""Presence: a process is there while Postgres holds the advisory lock of its incarnation.

The lock sits on one direct connection, so the kernel gives it back the moment the process dies.
Presence only speeds recovery; fences keep it correct (docs/invariants.md, I8).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable

import asyncpg

from trialog.spine import telemetry
from trialog.spine.database import DOWN, connect
from trialog.spine.postgres import queries

_CHECK_S = 2.0
_RETRY_S = 0.2


def new_incarnation() -> int:
    """Return a random name for one life of a process: 62 bits, positive as a bigint."""
    return secrets.randbits(62) | 1


class Presence:
    """Holds the lock of this process's incarnation for as long as it lives.

    ``on_change`` is told the new incarnation when the old one was given up by others while the
    connection was broken.
    """

    def __init__(
        self, url: str, service: str, incarnation: int, on_change: Callable[[int], None]
    ) -> None:
        self._url = url
        self._service = service
        self.incarnation = incarnation
        self._on_change = on_change
        self._connection: asyncpg.Connection | None = None
        self._known = False

    async def join(self) -> None:
        """Register and take the lock; the process counts as present when it returns."""
        if self._connection is not None:
            self._connection.terminate()
        self._connection = await connect(
            self._url,
            server_settings={
                "application_name": f"trialog-{self._service}-presence",
                # A peer that vanished without a word is noticed in seconds, not hours.
                "tcp_user_timeout": "5000",
                "tcp_keepalives_idle": "2",
                "tcp_keepalives_interval": "1",
                "tcp_keepalives_count": "3",
            },
        )
        await self._take()

    async def _take(self) -> None:
        connection = self._connection
        assert connection is not None
        while True:
            locked = await connection.fetchval(queries.LOCK_INCARNATION, self.incarnation)
            if locked and not self._known:
                await connection.execute(
                    queries.REGISTER_PROCESS,
                    self.incarnation,
                    self._service,
                    socket.gethostname(),
                    os.getpid(),
                )
                self._known = True
                return
            if locked and await connection.fetchval(queries.REJOIN_PROCESS, self.incarnation):
                return
            # Given up by others, or its old session still lingers: go on as a new life.
            self.incarnation = new_incarnation()
            self._known = False
            self._on_change(self.incarnation)

    async def keep(self) -> None:
        """Watch the connection until cancelled, and join again whenever it breaks."""
        log = telemetry.logger()
        while True:
            try:
                if self._connection is None or self._connection.is_closed():
                    await self.join()
                    log.info("presence restored", incarnation=self.incarnation)
                assert self._connection is not None
                async with asyncio.timeout(5):
                    await self._connection.fetchval("select 1")
                await asyncio.sleep(_CHECK_S)
            except DOWN as error:
                log.warning("presence lost: waiting for Postgres", error=str(error))
                if self._connection is not None:
                    self._connection.terminate()
                    self._connection = None
                await asyncio.sleep(_RETRY_S)

    async def leave(self) -> None:
        """Give the lock back."""
        if self._connection is not None:
            self._connection.terminate()
