"""The event log in memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import timedelta

from trialog.proto.ids import event_id
from trialog.spine.budget import Budget
from trialog.spine.log import DeadWork, Member, OpenWork, Recorded, Verdict, checked
from trialog.spine.memory.rows import NEVER, UNDECIDED, EventRow, WorkRow
from trialog.spine.memory.store import MemoryStore, link_of
from trialog.spine.presence import new_incarnation


class MemoryLog:
    """One process's log. Processes that share a store see and fence one another."""

    def __init__(self, store: MemoryStore | None = None, incarnation: int | None = None) -> None:
        self.store = store or MemoryStore()
        self.incarnation = incarnation or new_incarnation()

    async def commit(self, member: Member) -> Verdict:
        """Write one member and return its verdict (see EventLog.commit)."""
        await asyncio.sleep(0)
        return self.store.commit(self.incarnation, checked(member))

    def reincarnate(self, incarnation: int) -> None:
        """Go on under another name."""
        self.incarnation = incarnation

    async def close(self) -> None:
        """Nothing is queued."""

    async def read(self, partition: int, after: int, limit: int) -> list[Recorded]:
        """Return events of a partition above a position, in order."""
        rows = self.store.events.get(partition, [])
        return [row.recorded for row in rows[max(after, 0) : max(after, 0) + limit]]

    async def read_run(self, run_id: str, after: int, limit: int) -> list[Recorded]:
        """Return events of a run above a position, in order."""
        found = self.store.events_of(run_id)
        return [event for event in found if event.position > after][:limit]

    async def at_slot(self, run_id: str, slot: str) -> Recorded | None:
        """Return the event that holds a slot of a run, if any."""
        row = self.store.by_id.get(event_id(run_id, slot))
        return row.recorded if row else None

    async def at_slots(self, run_id: str, slots: Sequence[str], until: int) -> list[Recorded]:
        """Return the events up to a position that hold some slots of a run, in order."""
        known = (self.store.by_id.get(event_id(run_id, slot)) for slot in dict.fromkeys(slots))
        found = [row.recorded for row in known if row and row.recorded.position <= until]
        return sorted(found, key=lambda event: event.position)

    async def between(
        self, run_id: str, kind: str, after: str, before: str, until: int
    ) -> list[Recorded]:
        """Return a run's events of a type up to a position, after a slot and before another."""
        first, last = await self.at_slot(run_id, after), await self.at_slot(run_id, before)
        return [
            event
            for event in self.store.events_of(run_id)
            if event.type == kind
            and event.position <= until
            and (first is None or event.position > first.position)
            and (last is None or event.position < last.position)
        ]

    async def at_position(self, partition: int, position: int) -> Recorded | None:
        """Return one event."""
        events = await self.read(partition, position - 1, 1) if position > 0 else []
        return events[0] if events else None

    async def end(self, partition: int) -> int:
        """Return the position of the partition's last event; 0 when it has none."""
        head = self.store.heads.get(partition)
        return head.position if head else 0

    async def done(self, keys: Sequence[str]) -> set[str]:
        """Return which of some pieces of work are done."""
        return {key for key in keys if key in self.store.work and self.store.work[key].done}

    async def budget(self, run_id: str) -> Budget | None:
        """Return a run's budget, None for one that has none."""
        return self.store.budget(run_id)

    async def holds(self, key: str, fence: int) -> bool:
        """Tell whether this process holds a piece of work at a fence."""
        row = self.store.work.get(key)
        return row is not None and (row.incarnation, row.fence) == (self.incarnation, fence)

    async def broken_link(self, partition: int, after: int, until: int) -> int | None:
        """Walk the hash chain above ``after``; return the first broken position, or None."""
        rows = {row.recorded.position: row for row in self.store.events.get(partition, [])}
        for position in sorted(rows):
            before = rows.get(position - 1)
            if after < position <= until and _is_broken(rows[position], before):
                return position
        head = self.store.heads.get(partition)
        if head is not None and after < head.position <= until:
            last = rows.get(head.position)
            if last is None or last.hash != head.hash:
                return head.position
        return None

    async def open_work(self, partition: int, after: int, limit: int) -> list[OpenWork]:
        """Return unfinished work offered above a position, oldest first."""
        rows = [
            row
            for row in self.store.work.values()
            if row.partition == partition
            and row.position > after
            and not row.done
            and row.kind != "call"
            and row.run_id in self.store.runs
            and row.not_before != UNDECIDED
        ]
        rows.sort(key=lambda row: (row.position, row.key))
        return [self._open(row) for row in rows[:limit]]

    def _open(self, row: WorkRow) -> OpenWork:
        return OpenWork(
            row.key,
            row.kind,
            row.run_id,
            row.position,
            row.incarnation is not None,
            row.lease_until < self.store.clock(),
            self.store.runs[row.run_id].state,
            row.not_before,
            row.closed,
        )

    async def dead_work(self, run_id: str) -> list[DeadWork]:
        """Return a run's work that was given up, oldest offer first."""
        rows = [row for row in self.store.work.values() if row.run_id == run_id and row.dead]
        rows.sort(key=lambda row: (row.position, row.key))
        return [DeadWork(r.key, r.kind, r.run_id, r.position, r.breakdowns) for r in rows]

    async def reopen(self, keys: Sequence[str]) -> list[str]:
        """Let dead work be done after all and return the keys that were dead and are needed."""
        rows = [self.store.work[key] for key in keys if key in self.store.work]
        reopened = [row for row in rows if row.dead and not row.closed]
        for row in reopened:
            row.dead = row.done = False
        return [row.key for row in reopened]

    async def own_partition(
        self, partition: int, lease_ms: int, gone: int | None = None
    ) -> int | None:
        """Take a partition that nobody holds, or whose owner is gone; return the new fence."""
        head, now = self.store.heads[partition], self.store.clock()
        if head.lease_until >= now and head.owner not in (gone, self.incarnation):
            return None
        head.owner, head.owner_fence = self.incarnation, head.owner_fence + 1
        head.lease_until = now + timedelta(milliseconds=lease_ms)
        return head.owner_fence

    async def keep_partition(self, partition: int, fence: int, lease_ms: int) -> bool:
        """Stay the owner; False when the partition was lost."""
        head = self.store.heads[partition]
        if (head.owner, head.owner_fence) != (self.incarnation, fence):
            return False
        head.lease_until = self.store.clock() + timedelta(milliseconds=lease_ms)
        return True

    async def leave_partition(self, partition: int, fence: int) -> None:
        """Let the next owner in without waiting for the lease."""
        head = self.store.heads[partition]
        if (head.owner, head.owner_fence) == (self.incarnation, fence):
            head.lease_until = NEVER

    async def void(self, incarnations: Sequence[int]) -> int:
        """End the leases of processes that are gone; return how many."""
        rows = [
            row
            for row in self.store.work.values()
            if not row.done and row.incarnation in incarnations
        ]
        for row in rows:
            row.lease_until = NEVER
        return len(rows)


def _is_broken(row: EventRow, before: EventRow | None) -> bool:
    event = row.recorded
    head = f"{event.run_id}\n{event.type}\n{event.schema_version}\n{event.data}"
    return (
        row.prev_hash != (before.hash if before else b"")
        or row.body_hash != hashlib.sha256(event.event_id.bytes + head.encode()).digest()
        or row.hash != link_of(row.prev_hash, event, row.body_hash)
    )
