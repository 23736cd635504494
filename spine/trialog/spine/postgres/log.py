"""The event log on Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import asyncpg

from trialog.proto.ids import event_id
from trialog.spine import telemetry
from trialog.spine.budget import Amount, Budget, Limits
from trialog.spine.database import DOWN, Database, patiently
from trialog.spine.log import (
    DeadWork,
    InvalidMemberError,
    Member,
    OpenWork,
    Recorded,
    Verdict,
    checked,
)
from trialog.spine.postgres import queries
from trialog.spine.postgres.batch import batch_arguments
from trialog.spine.writer import GroupWriter

_EVENT_PARTITIONS = 10  # place of e_partition among commit_batch's arguments
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_CLOSE_S = 5.0
_DATA_ERRORS = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)


def _is_data_error(error: Exception) -> bool:
    """Tell what the data caused, in Postgres or already in the client that encodes it.

    The client's own error looks like one of the connection but for being a ValueError.
    """
    return isinstance(error, _DATA_ERRORS) or (
        isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
    )


class PostgresLog:
    """Reads through the database's pool, writes through one group-commit writer.

    ``incarnation`` names this life of the process: claims are held under it. ``on_append`` is
    told the partition of every batch that had events.
    """

    def __init__(self, database: Database, incarnation: int) -> None:
        self.database = database
        self.incarnation = incarnation
        self.on_append: Callable[[int], None] = lambda partition: None
        self._writer = GroupWriter(self._commit, _is_data_error)

    async def commit(self, member: Member) -> Verdict:
        """Write one member in the next batch (see EventLog.commit)."""
        try:
            return await self._writer.write(checked(member))
        except Exception as error:
            if _is_data_error(error):
                raise InvalidMemberError(str(error)) from error
            raise

    def reincarnate(self, incarnation: int) -> None:
        """Go on under another name: the old one was given up while Postgres was out of reach."""
        self.incarnation = incarnation

    async def close(self, patience_s: float = _CLOSE_S) -> None:
        """Commit what is queued; when Postgres is away for longer than that, leave it."""
        try:
            async with asyncio.timeout(patience_s):
                await self._writer.close()
        except TimeoutError:
            telemetry.logger().error("log closed without Postgres: what was queued is not written")

    async def _commit(self, members: Sequence[Member]) -> list[Verdict]:
        """Send a batch until Postgres has it.

        A batch whose answer got lost may be there already. Sent again, a repeated append or finish
        is answered ok, and a repeated claim held: its lease ends and somebody takes it over.
        """
        arguments = batch_arguments(self.incarnation, members)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                rows = await self._fetch(queries.COMMIT_BATCH, *arguments)
            except DOWN as error:
                if _is_data_error(error):
                    raise
                telemetry.logger().warning(
                    "log unavailable: waiting for Postgres", error=str(error)
                )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                continue
            for partition in {*arguments[_EVENT_PARTITIONS]}:
                self.on_append(partition)
            telemetry.BATCHES.inc()
            telemetry.MEMBERS.inc(len(members))
            return [Verdict(*row[1:]) for row in sorted(rows, key=itemgetter(0))]

    async def read(self, partition: int, after: int, limit: int) -> list[Recorded]:
        """Return events of a partition above a position, in order."""
        rows = await self._fetch(queries.READ, partition, after, limit)
        return [Recorded(*row) for row in rows]

    async def read_run(self, run_id: str, after: int, limit: int) -> list[Recorded]:
        """Return events of a run above a position, in order."""
        rows = await self._fetch(queries.READ_RUN, run_id, after, limit)
        return [Recorded(*row) for row in rows]

    async def at_slot(self, run_id: str, slot: str) -> Recorded | None:
        """Return the event that holds a slot of a run, if any."""
        identity = event_id(run_id, slot)
        rows = await patiently(lambda: self._fetch(queries.AT_EVENT_ID, identity))
        return Recorded(*rows[0]) if rows else None

    async def at_slots(self, run_id: str, slots: Sequence[str], until: int) -> list[Recorded]:
        """Return the events up to a position that hold some slots of a run, in order."""
        ids = [event_id(run_id, slot) for slot in dict.fromkeys(slots)]
        return [Recorded(*row) for row in await self._fetch(queries.AT_EVENT_IDS, ids, until)]

    async def between(
        self, run_id: str, kind: str, after: str, before: str, until: int
    ) -> list[Recorded]:
        """Return a run's events of a type up to a position, after a slot and before another."""
        bounds = event_id(run_id, after), event_id(run_id, before)
        rows = await self._fetch(queries.BETWEEN, run_id, kind, *bounds, until)
        return [Recorded(*row) for row in rows]

    async def at_position(self, partition: int, position: int) -> Recorded | None:
        """Return one event."""
        rows = await patiently(lambda: self._fetch(queries.AT_POSITION, partition, position))
        return Recorded(*rows[0]) if rows else None

    async def end(self, partition: int) -> int:
        """Return the position of the partition's last event; 0 when it has none."""
        rows = await self._fetch(queries.END, partition)
        return rows[0][0] if rows else 0

    async def done(self, keys: Sequence[str]) -> set[str]:
        """Return which of some pieces of work are done."""
        return {row[0] for row in await self._fetch(queries.DONE, list(keys))} if keys else set()

    async def budget(self, run_id: str) -> Budget | None:
        """Return a run's budget, None for one that has none."""
        rows = await patiently(lambda: self._fetch(queries.BUDGET, run_id))
        return budget_of(rows[0]) if rows else None

    async def holds(self, key: str, fence: int) -> bool:
        """Tell whether this process holds a piece of work at a fence."""
        rows = await patiently(lambda: self._fetch(queries.HOLDS, key, self.incarnation, fence))
        return bool(rows)

    async def broken_link(self, partition: int, after: int, until: int) -> int | None:
        """Walk the hash chain above ``after``; return the first broken position, or None."""
        rows = await self._fetch(queries.VERIFY_CHAIN, partition, after, until)
        return rows[0][0]

    async def open_work(self, partition: int, after: int, limit: int) -> list[OpenWork]:
        """Return unfinished work offered above a position, oldest first."""
        rows = await self._fetch(queries.OPEN_WORK, partition, after, limit)
        return [OpenWork(*row) for row in rows]

    async def dead_work(self, run_id: str) -> list[DeadWork]:
        """Return a run's work that was given up, oldest offer first."""
        return [DeadWork(*row) for row in await self._fetch(queries.DEAD_WORK, run_id)]

    async def reopen(self, keys: Sequence[str]) -> list[str]:
        """Let dead work be done after all and return the keys that were dead and are needed.

        The sweeper offers it.
        """
        return [row[0] for row in await self._fetch(queries.REOPEN_WORK, list(keys))]

    async def _fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self.database.connection() as connection:
            return await connection.fetch(query, *arguments)


def budget_of(row: asyncpg.Record) -> Budget:
    """Return the budget of a row of queries.BUDGET."""
    return Budget(Limits(*row[:3]), Amount(*row[3:6]), Amount(*row[6:9]), row[9], row[10])
