"""The sweeper: no work is lost, whatever died.

It offers work again that is unfinished, without a live lease, and whose holder is gone, whose
stream is gone, or whose message the consumer has passed for longer than a redelivery takes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence

from trialog.driver.relay import Relay, message_of
from trialog.proto.work import KINDS
from trialog.spine import telemetry
from trialog.spine.bus import ACK_WAIT_S, Bus
from trialog.spine.log import OpenWork
from trialog.spine.postgres import queries
from trialog.spine.postgres.log import PostgresLog

_REDELIVERY_S = ACK_WAIT_S + 5
_PAGE = 1000


class Sweeper:
    """Looks after one partition for its owner."""

    def __init__(self, log: PostgresLog, bus: Bus, relay: Relay, partition: int, pool: str) -> None:
        self._log, self._bus, self._relay = log, bus, relay
        self._partition, self._pool = partition, pool
        self._passed_since: dict[str, float] = {}

    async def void_the_gone(self) -> bool:
        """End the leases of processes that vanished; true when any were."""
        async with self._log.database.connection() as connection:
            gone = [row[0] for row in await connection.fetch(queries.GONE)]
            if not gone:
                return False
            voided = await connection.fetchval(queries.VOID_INCARNATIONS, gone)
        telemetry.logger().warning(
            "processes vanished", incarnations=[f"{g:x}" for g in gone], leases_voided=voided
        )
        return True

    async def offer_lapsed(self) -> int:
        """Offer again what is held under a lease that ended. Raises bus.DOWN."""
        async with self._log.database.connection() as connection:
            await connection.execute(queries.BURY_CLOSED, self._partition)
            rows = await connection.fetch(queries.LAPSED_WORK, self._partition)
        wanted = {row[0] for row in rows}
        if not wanted:
            return 0
        return await self._offer([work async for work in self._open() if work.key in wanted])

    async def offer_all(self, run_id: str | None = None) -> int:
        """Offer all unfinished work without a live lease: after a resume, or to a new stream."""
        works = [
            work
            async for work in self._open()
            if not (work.held and not work.expired) and (run_id is None or work.run_id == run_id)
        ]
        return await self._offer(works)

    async def offer_passed(self) -> int:
        """Offer again free work whose message went by long ago. Raises bus.DOWN."""
        delivered = {kind: await self._bus.delivered(kind, self._pool) for kind in KINDS}
        now = time.monotonic()
        seen: dict[str, float] = {}
        late: list[OpenWork] = []
        async for work in self._open():
            if work.held or work.closed or work.run_state != "running":
                continue
            if work.position > self._relay.position:
                continue
            if self._relay.sequence_of(work.position) > delivered[work.kind]:
                continue
            seen[work.key] = self._passed_since.get(work.key, now)
            if now - seen[work.key] > _REDELIVERY_S:
                late.append(work)
                seen[work.key] = now
        self._passed_since = seen
        return await self._offer(late)

    async def _open(self) -> AsyncGenerator[OpenWork]:
        after = 0
        while page := await self._log.open_work(self._partition, after, _PAGE):
            for work in page:
                yield work
            after = page[-1].position

    async def _offer(self, works: Sequence[OpenWork]) -> int:
        works = [w for w in works if w.run_state == "running" and not w.closed]
        if not works:
            return 0
        async with self._log.database.connection() as connection:
            rows = await connection.fetch(queries.COUNT_SWEEPS, [work.key for work in works])
        sweeps = {row["key"]: row["sweeps"] for row in rows}
        messages: list[tuple[str, bytes, str]] = []
        for work in works:
            event = await self._log.at_position(self._partition, work.position)
            if event is not None and work.key in sweeps:
                messages.append(message_of(event, self._pool, sweeps[work.key]))
        await self._bus.offer(messages)
        telemetry.logger().info("work offered again", count=len(messages))
        return len(messages)
