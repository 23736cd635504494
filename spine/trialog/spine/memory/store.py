"""The log's truth in memory: what commit_batch.sql does to the tables, one member at a time.

A batch gives every member the verdict that it would get alone, so a member at a time is the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from trialog.proto import events as ev
from trialog.proto.work import CALL
from trialog.spine.budget import NOTHING, Amount, Budget
from trialog.spine.log import (
    Append,
    Claim,
    Fail,
    Finish,
    GiveBack,
    InvalidMemberError,
    Member,
    NewEvent,
    Recorded,
    Release,
    Renew,
    Verdict,
)
from trialog.spine.memory.budgets import Budgets
from trialog.spine.memory.clock import Clock, system_clock
from trialog.spine.memory.rows import NEVER, UNDECIDED, EventRow, Head, RunRow, WorkRow

_RUN_STATES = {"RunPaused": "paused", "RunResumed": "running"} | dict.fromkeys(ev.RUN_ENDS, "ended")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OfWork = Claim | Finish | Fail | Release | GiveBack | Renew


class MemoryStore:
    """Partitions, events, runs, work and small blobs, shared by the logs of many processes."""

    def __init__(self, clock: Clock = system_clock, partitions: int = 1) -> None:
        self.clock = clock
        self.heads = {partition: Head() for partition in range(partitions)}
        self.events: dict[int, list[EventRow]] = {partition: [] for partition in self.heads}
        self.by_id: dict[UUID, EventRow] = {}
        self.runs: dict[str, RunRow] = {}
        self.work: dict[str, WorkRow] = {}
        self.budgets = Budgets()
        self.blobs: dict[str, bytes] = {}

    def commit(self, incarnation: int, member: Member) -> Verdict:
        """Apply a member wholly or not at all. Raises InvalidMemberError, having done nothing."""
        events = () if isinstance(member, Renew) else member.events
        for event in events:
            if event.partition not in self.heads:
                raise InvalidMemberError("an event names an unknown partition")
        if isinstance(member, Append):
            return self._append(member, incarnation)
        row = self._work_of(member)
        if row is None:
            return Verdict("unknown" if isinstance(member, Claim) else "lost")
        verdict = self._judge(member, row)
        if verdict.ok and self._differs(events):
            verdict = replace(verdict, answer="different")
        if verdict.ok and isinstance(member, Claim) and not self.budgets.fund(member):
            verdict = replace(verdict, answer="unfunded")
        if verdict.ok:
            last = self._record(events, incarnation)
            verdict = replace(verdict, result=verdict.result if last is None else last)
            if isinstance(member, Finish | Fail):
                self.blobs |= {hashlib.sha256(data).hexdigest(): data for data in member.blobs}
            self._apply(member, row, verdict, incarnation)
        return verdict

    def _append(self, member: Append, incarnation: int) -> Verdict:
        if member.owner_fence is not None:
            of = member.events[0].partition if member.events else member.partition
            if of not in self.heads:
                raise InvalidMemberError("an event names an unknown partition")
            if self.heads[of].owner_fence != member.owner_fence:
                return Verdict("fenced")
        if self._differs(member.events):
            return Verdict("different")
        last = self._record(member.events, incarnation)
        for key in member.closes:
            row = self.work.get(key)
            if row is not None and (not row.done or row.dead):
                row.closed, row.done, row.dead = True, row.incarnation is None, False
        return Verdict("ok", result=last)

    def _work_of(self, member: _OfWork) -> WorkRow | None:
        """Return the member's row, made by the claim where it brings new work."""
        creates = member.creates if isinstance(member, Claim) else None
        if creates is not None and creates.run_id in self.runs and member.key not in self.work:
            partition = self.runs[creates.run_id].partition
            self.work[member.key] = WorkRow(member.key, creates.kind, creates.run_id, partition, 0)
        row = self.work.get(member.key)
        return row if row is not None and row.run_id in self.runs else None

    def _judge(self, member: _OfWork, row: WorkRow) -> Verdict:
        counts = Verdict(
            "ok", row.fence, row.failures, row.injected, row.lost, row.result, row.breakdowns
        )
        if not isinstance(member, Claim):
            return replace(counts, answer=_answer_of_holder(member, row))
        answer = self._answer_of_claim(member, row)
        if answer != "ok":
            return replace(counts, answer=answer)
        lost = row.lost + (row.incarnation is not None)
        return replace(counts, fence=row.fence + 1, lost=lost)

    def _answer_of_claim(self, claim: Claim, row: WorkRow) -> str:
        now = self.clock()
        held = row.incarnation is not None
        if row.done or row.closed:
            return "done"
        # A call belongs to the tree: the run that asks now counts, not the one that asked first.
        asks = claim.creates.run_id if claim.creates is not None else row.run_id
        if self.runs[asks].state != "running":
            return "refused"
        if held and row.lease_until > now:
            return "held"
        if (held or claim.expect is not None) and row.fence != claim.expect:
            return "stale"
        if row.not_before == UNDECIDED:
            return "undecided"
        if row.not_before is not None and row.not_before > now:
            return "early"
        return "ok"

    def _differs(self, events: Sequence[NewEvent]) -> bool:
        known = ((self.by_id.get(event.event_id), event) for event in events)
        return any(row is not None and row.body_hash != new.body_hash for row, new in known)

    def _record(self, events: Sequence[NewEvent], incarnation: int) -> int | None:
        """Append what is new; return the position of the last event, new or known."""
        last: int | None = None
        at = self.clock()
        for event in events:
            row = self.by_id.get(event.event_id)
            if row is None:
                row = self._chain(event, at)
                self._move_run(event)
                self._offer(event, row.recorded.position, at, incarnation)
            last = row.recorded.position
        return last

    def _chain(self, event: NewEvent, at: datetime) -> EventRow:
        head = self.heads[event.partition]
        head.position += 1
        recorded = Recorded(
            event.partition,
            head.position,
            event.event_id,
            event.run_id,
            event.type,
            event.schema_version,
            event.data,
            at,
        )
        link = link_of(head.hash, recorded, event.body_hash)
        row = EventRow(recorded, event.body_hash, head.hash, link)
        head.hash = link
        self.events[event.partition].append(row)
        self.by_id[event.event_id] = row
        return row

    def _move_run(self, event: NewEvent) -> None:
        if event.type == "RunRequested":
            row = RunRow(event.run_id, event.partition, event.root or "")
            self.runs.setdefault(event.run_id, row)
        elif event.type not in _RUN_STATES:
            return
        fact = ev.decode(event.type, event.schema_version, event.data)
        run = self.runs.get(event.run_id)
        if run is not None and run.state != "ended" and event.type in _RUN_STATES:
            run.state = _RUN_STATES[event.type]
            run.pauses = fact.n + 1 if isinstance(fact, ev.RunPaused) else run.pauses
        self.budgets.set(event.run_id, fact, lambda: self.events_of(event.run_id))

    def events_of(self, run_id: str) -> list[Recorded]:
        """Return all events of a run, in order of position."""
        rows = (row for rows in self.events.values() for row in rows)
        found = [row.recorded for row in rows if row.recorded.run_id == run_id]
        return sorted(found, key=lambda event: event.position)

    def budget(self, run_id: str) -> Budget | None:
        """Return a run's budget. Calls whose holder is gone may have been billed: spent."""
        row, run = self.budgets.rows.get(run_id), self.runs.get(run_id)
        if row is None or run is None:
            return None
        lost = NOTHING
        for work in self.work.values():
            if work.payer == run_id and work.reserved and work.lease_until < self.clock():
                lost = lost.plus(Amount(1, *work.reserved))
        spent, reserved = row.spent.plus(lost), row.reserved.minus(lost)
        return Budget(row.limits, spent, reserved, run.state, run.pauses)

    def _offer(self, event: NewEvent, position: int, at: datetime, incarnation: int) -> None:
        if event.offer is None:
            return
        offer, key = event.offer, event.offer.work.key
        due = None
        if offer.not_before_ms is not None:
            due = _EPOCH + timedelta(milliseconds=offer.not_before_ms)
        row = self.work.get(key)
        if row is not None:
            row.position, row.not_before = position, due
            return
        row = WorkRow(key, offer.work.kind, event.run_id, event.partition, position)
        row.not_before = due
        if offer.held_ms is not None:
            row.fence, row.incarnation = 1, incarnation
            row.lease_until = at + timedelta(milliseconds=offer.held_ms)
        self.work[key] = row

    def _apply(
        self,
        member: _OfWork,
        row: WorkRow,
        verdict: Verdict,
        incarnation: int,
    ) -> None:
        row.incarnation, row.lease_until = None, NEVER
        match member:
            case Claim() | Renew():
                row.incarnation, row.fence, row.lost = incarnation, verdict.fence, verdict.lost
                row.lease_until = self.clock() + timedelta(milliseconds=member.lease_ms)
            case Finish():
                row.done, row.dead, row.result = True, False, verdict.result
            case Fail():
                row.fence += 1
                row.failures += 1
                row.injected += member.injected
                row.not_before = row.not_before if row.kind == CALL else UNDECIDED
                row.done = row.closed
            case Release():
                row.fence += 1
                row.breakdowns += 1
                row.dead = member.dead and not row.closed
                row.done = member.dead or row.closed
            case GiveBack():
                row.fence += 1
                row.done = row.closed
        self.budgets.move(member, row)


def _answer_of_holder(member: Finish | Fail | Release | GiveBack | Renew, row: WorkRow) -> str:
    if row.fence != member.fence:
        return "lost"
    if row.done:
        # A finish sent again after a broken connection finds its own work done.
        return "ok" if isinstance(member, Finish) else "lost"
    if row.incarnation is None:
        return "lost"
    return "closed" if isinstance(member, Renew) and row.closed else "ok"


def link_of(previous: bytes, event: Recorded, body_hash: bytes) -> bytes:
    """Return an event's link in the hash chain."""
    microseconds = (event.recorded_at - _EPOCH) // timedelta(microseconds=1)
    return hashlib.sha256(
        previous
        + event.partition.to_bytes(4, signed=True)
        + event.position.to_bytes(8, signed=True)
        + microseconds.to_bytes(8, signed=True)
        + body_hash
    ).digest()
