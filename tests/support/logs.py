"""One way to ask the log in memory and the one in Postgres, for the suite that holds both."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import asyncpg
from support import facts as f
from support.stack import StackThread
from support.waiting import eventually
from trialog.proto import events as ev
from trialog.proto.ids import run_id_from
from trialog.proto.work import work_of
from trialog.spine.blobs import BlobMissingError, PostgresBlobs
from trialog.spine.database import Database, connect
from trialog.spine.log import Append, Claim, NewEvent, Verdict, new_event
from trialog.spine.memory.blobs import MemoryBlobs
from trialog.spine.memory.clock import ManualClock
from trialog.spine.memory.log import MemoryLog
from trialog.spine.memory.store import MemoryStore
from trialog.spine.postgres import queries
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.presence import new_incarnation

AnyLog = MemoryLog | PostgresLog


class Shelf:
    """What every ledger can do with its log, whichever it is."""

    partition: int
    run_id: str

    def event(self, fact: ev.Fact, **how: Any) -> NewEvent:
        """Return a fact of the run as an event."""
        return new_event(self.run_id, fact, partition=self.partition, **how)

    async def append(self, log: AnyLog, *facts: ev.Fact, **how: Any) -> Verdict:
        """Append facts of the run."""
        return await log.commit(Append([self.event(fact) for fact in facts], **how))

    async def begin(self, log: AnyLog, *facts: ev.Fact) -> None:
        """Ask for the run, and append facts."""
        (await self.append(log, f.run_requested(self.run_id), *facts)).check()

    async def held(self, log: AnyLog, fact: ev.Fact, lease_ms: int = 60_000) -> tuple[str, int]:
        """Offer a fact's work and claim it; return its key and fence."""
        await self.append(log, fact)
        key = self.key(fact)
        verdict = await log.commit(Claim(key, lease_ms))
        assert verdict.ok, verdict
        return key, verdict.fence

    def key(self, fact: ev.Fact) -> str:
        """Return the key of a fact's work."""
        name = work_of(self.run_id, fact)
        assert name is not None
        return name.key

    async def recorded(self, log: AnyLog) -> list[ev.Fact]:
        """Return the run's facts but for its request."""
        return [event.fact() for event in await log.read_run(self.run_id, 0, 10_000)][1:]


class MemoryLedger(Shelf):
    """A store in memory under a clock that the test moves."""

    def __init__(self) -> None:
        self.partition, self.run_id = 0, run_id_from(os.urandom(16))
        self.clock = ManualClock(datetime(2026, 11, 30, 12, tzinfo=UTC))
        self.store = MemoryStore(self.clock)
        self.blobs = MemoryBlobs(self.store)

    def open(self) -> MemoryLog:
        return MemoryLog(self.store, new_incarnation())

    async def own(self, log: AnyLog, lease_ms: int = 60_000, gone: int | None = None) -> int | None:
        assert isinstance(log, MemoryLog)
        return await log.own_partition(self.partition, lease_ms, gone)

    async def keep(self, log: AnyLog, fence: int, lease_ms: int = 60_000) -> bool:
        assert isinstance(log, MemoryLog)
        return await log.keep_partition(self.partition, fence, lease_ms)

    async def leave(self, log: AnyLog, fence: int) -> None:
        assert isinstance(log, MemoryLog)
        await log.leave_partition(self.partition, fence)

    async def void(self, *incarnations: int) -> None:
        await MemoryLog(self.store).void(incarnations)

    async def lapse(self, *keys: str) -> None:
        last = max(self.store.work[key].lease_until for key in keys)
        self.clock.advance((last - self.clock()).total_seconds() * 1000 + 1)

    async def row(self, key: str) -> dict[str, Any]:
        return dataclasses.asdict(self.store.work[key])

    async def run_state(self) -> str | None:
        run = self.store.runs.get(self.run_id)
        return run.state if run else None

    async def holds_blob(self, digest: str) -> bool:
        return digest in self.store.blobs

    async def tamper(self, position: int, **columns: str) -> None:
        row = self.store.events[self.partition][position - 1]
        row.recorded = dataclasses.replace(row.recorded, **columns)  # pyright: ignore[reportArgumentType]

    async def remove(self, position: int) -> None:
        del self.store.events[self.partition][position - 1]


class PostgresLedger(Shelf):
    """A new partition of the session's Postgres; ``admin`` is its tables' owner."""

    def __init__(self, stack: StackThread, database: Database, admin: asyncpg.Connection) -> None:
        self.partition = int.from_bytes(os.urandom(3)) + 1
        self.run_id = run_id_from(os.urandom(16))
        self._database, self._admin = database, admin
        self.logs: list[PostgresLog] = []
        stack.blob_dir.mkdir(parents=True, exist_ok=True)
        self.blobs = PostgresBlobs(database, stack.blob_dir)

    def open(self) -> PostgresLog:
        self.logs.append(PostgresLog(self._database, new_incarnation()))
        return self.logs[-1]

    async def _value(self, query: str, *arguments: Any) -> Any:
        async with self._database.connection() as connection:
            return await connection.fetchval(query, *arguments)

    async def own(self, log: AnyLog, lease_ms: int = 60_000, gone: int | None = None) -> int | None:
        return await self._value(
            queries.OWN_PARTITION, self.partition, log.incarnation, lease_ms, gone
        )

    async def keep(self, log: AnyLog, fence: int, lease_ms: int = 60_000) -> bool:
        query = queries.KEEP_PARTITION
        return await self._value(query, self.partition, log.incarnation, fence, lease_ms)

    async def leave(self, log: AnyLog, fence: int) -> None:
        await self._value(queries.LEAVE_PARTITION, self.partition, log.incarnation, fence)

    async def void(self, *incarnations: int) -> None:
        await self._value(queries.VOID_INCARNATIONS, list(incarnations))

    async def lapse(self, *keys: str) -> None:
        query = "select max(lease_until) < clock_timestamp() from work where key = any($1)"
        await eventually(lambda: self._value(query, list(keys)))

    async def row(self, key: str) -> dict[str, Any]:
        async with self._database.connection() as connection:
            row = await connection.fetchrow("select * from work where key = $1", key)
        assert row is not None
        return dict(row)

    async def run_state(self) -> str | None:
        return await self._value("select state from run where run_id = $1", self.run_id)

    async def holds_blob(self, digest: str) -> bool:
        try:
            await PostgresBlobs(self._database, self.blobs._folder).get(digest)
        except BlobMissingError:
            return False
        return True

    async def tamper(self, position: int, **columns: str) -> None:
        for column, value in columns.items():
            await self._as_owner(
                f"update event set {column} = $3 where partition = $1 and position = $2",
                self.partition,
                position,
                value,
            )

    async def remove(self, position: int) -> None:
        query = "delete from event where partition = $1 and position = $2"
        await self._as_owner(query, self.partition, position)

    async def _as_owner(self, query: str, *arguments: Any) -> None:
        async with self._admin.transaction():
            await self._admin.execute("alter table event disable trigger all")
            await self._admin.execute(query, *arguments)
            await self._admin.execute("alter table event enable trigger all")


Ledger = MemoryLedger | PostgresLedger


async def postgres_ledger(stack: StackThread) -> AsyncGenerator[PostgresLedger]:
    """Yield a ledger on the session's Postgres."""
    database = Database(stack.database_url)
    admin = await connect(stack.admin_database_url)
    ledger = PostgresLedger(stack, database, admin)
    await admin.execute("insert into head (partition) values ($1)", ledger.partition)
    yield ledger
    for log in ledger.logs:
        await log.close()
    await admin.close()
    await database.dispose()
