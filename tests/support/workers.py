"""Work as the relay offers it, and a worker of the spine's own kind that takes it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from support import facts as f
from support.waiting import eventually
from trialog.proto import events as ev
from trialog.proto.work import WorkMessage, WorkName, work_of
from trialog.spine.bus import DOWN as BUS_DOWN
from trialog.spine.bus import STREAM, Bus, subject_of
from trialog.spine.consumer import Consumer, Handler
from trialog.spine.log import Append, new_event
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.runs import Runs

KIND = "trial"


class Shop:
    """One run, one pool of its own on the bus, and workers on it."""

    def __init__(self, log: PostgresLog, bus: Bus, run_id: str) -> None:
        self.log, self.bus, self.run_id = log, bus, run_id
        self.pool = f"t{os.urandom(6).hex()}"

    async def begin(self, **settings: Any) -> None:
        """Ask for the run."""
        await self.append(f.run_requested(self.run_id, **settings))

    async def append(self, *facts: ev.Fact) -> int:
        """Append facts and return the last one's position."""
        verdict = await self.log.commit(Append([new_event(self.run_id, fact) for fact in facts]))
        position = verdict.check().result
        assert position is not None
        return position

    async def offer(self, fact: ev.Fact, **changes: Any) -> WorkName:
        """Append a fact and publish the work that it offers; ``changes`` are of the message."""
        position = await self.append(fact)
        await self.publish(self.message(fact, position, **changes))
        name = work_of(self.run_id, fact)
        assert name is not None
        return name

    def message(self, fact: ev.Fact, position: int = 0, **changes: Any) -> bytes:
        """Return the message of a fact's work, as the relay sends it."""
        name = work_of(self.run_id, fact)
        assert name is not None
        values: dict[str, Any] = {
            "key": name.key,
            "kind": name.kind,
            "run_id": self.run_id,
            "partition": 0,
            "position": position,
            "type": type(fact).__name__,
            "schema_version": 1,
            "data": ev.encode(fact).decode(),
            "not_before_ms": getattr(fact, "not_before_ms", 0),
        }
        return msgspec.json.encode(WorkMessage(**values | changes))

    async def publish(self, *payloads: bytes) -> None:
        """Send messages, each under an id of its own, once the stream is there to take them."""
        subject = subject_of(KIND, self.pool)
        batch = [(subject, payload, os.urandom(8).hex()) for payload in payloads]

        async def sent() -> bool:
            try:
                await self.bus.ensure_stream()
                await self.bus.offer(batch)
            except BUS_DOWN:
                return False
            return True

        await eventually(sent)

    async def settled(self, deliveries: int = 1) -> None:
        """Wait until so many messages were delivered and all of them are acknowledged."""

        async def quiet() -> bool:
            try:
                info = await self.bus.jetstream.consumer_info(STREAM, f"{KIND}-{self.pool}")
            except BUS_DOWN:
                return False
            assert info.ack_floor is not None
            acked = info.ack_floor.consumer_seq
            return acked >= deliveries and not (info.num_ack_pending or info.num_pending)

        await eventually(quiet)

    @contextlib.asynccontextmanager
    async def worker(
        self,
        handler: Handler,
        *,
        log: PostgresLog | None = None,
        bus: Bus | None = None,
        concurrency: int = 8,
        lease_ms: int = 30_000,
    ) -> AsyncGenerator[Consumer]:
        """Run a worker of this pool for as long as the block takes."""
        log = log or self.log
        consumer = Consumer(
            bus=bus or self.bus,
            log=log,
            runs=Runs(log),
            kind=KIND,
            pool=self.pool,
            handler=handler,
            concurrency=concurrency,
            lease_ms=lease_ms,
            worker="tester",
            breakdown_pause_s=0.01,
        )
        running = asyncio.create_task(consumer.run())
        try:
            yield consumer
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await consumer.drain(0)

    async def events(self, *kinds: str) -> list[ev.Fact]:
        """Return the run's facts of some types (default: all), in order."""
        events = await self.log.read_run(self.run_id, 0, 100_000)
        return [event.fact() for event in events if not kinds or event.type in kinds]

    async def row(self, key: str) -> Any:
        """Return the work's row."""
        async with self.log.database.connection() as connection:
            return await connection.fetchrow("select * from work where key = $1", key)

    async def done(self, key: str) -> bool:
        """Tell whether work is done."""
        row = await self.row(key)
        return row is not None and row["done"]
