"""The event log's port: what can be written, the verdicts, and how it is read.

Everything a process writes is a *member* of a batch: it applies wholly or not at all and gets its
own verdict, whatever becomes of its neighbours (spine/writer.py, migrations/.../commit_batch.sql).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import msgspec

from trialog.proto import events as ev
from trialog.proto.ids import event_id
from trialog.proto.slots import slot_of
from trialog.proto.work import WorkName, work_of
from trialog.spine.budget import FREE, MAX_COST, Budget, Cost

MAX_EVENT_BYTES = 4096
MAX_RUN_REQUESTED_BYTES = 131_072
MAX_INLINE_BLOB_BYTES = 32_768
MAX_LEASE_MS = 2**31 - 1


class LogError(Exception):
    """Base of what the log refuses."""


class EventTooLargeError(LogError):
    """An event's data is over the limit: bytes belong in the blob store."""


class InvalidMemberError(LogError, ValueError):
    """A member that the log could not keep: refused before it is queued, so that it harms none."""


class ClaimLostError(LogError):
    """The claim is no longer this worker's: what it did since is not recorded."""


class FencedError(LogError):
    """The partition belongs to another driver now: this one must stop writing."""


class SlotTakenError(LogError):
    """Another fact holds the slot; nothing of the member was written."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Work that an event puts up. ``held_ms``: claimed in the same breath for that long."""

    work: WorkName
    held_ms: int | None = None
    not_before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event on its way to the log, encoded, hashed and checked for size."""

    partition: int
    event_id: uuid.UUID
    run_id: str
    type: str
    schema_version: int
    data: str
    body_hash: bytes
    offer: Offer | None = None
    root: str | None = None
    trace_parent: str | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event read back. ``recorded_at`` is Postgres time, in UTC."""

    partition: int
    position: int
    event_id: uuid.UUID
    run_id: str
    type: str
    schema_version: int
    data: str
    recorded_at: datetime

    def fact(self) -> ev.Fact:
        """Decode the data. Raises UnknownEventError for what this build does not know."""
        return ev.decode(self.type, self.schema_version, self.data)


def new_event(
    run_id: str,
    fact: ev.Fact,
    *,
    partition: int = 0,
    offered: bool = True,
    held_ms: int | None = None,
) -> NewEvent:
    """Return a fact as an event. ``offered``: its work, if it has any, is put up with it.

    Raises EventTooLargeError, and InvalidMemberError for a fact that could not be read back (a
    NaN, a missing value, a wrong type), before anything is queued.
    """
    name = type(fact).__name__
    data = ev.encode(fact)
    limit = MAX_RUN_REQUESTED_BYTES if name == "RunRequested" else MAX_EVENT_BYTES
    if len(data) > limit:
        raise EventTooLargeError(f"{name} has {len(data)} bytes of data; the limit is {limit}")
    version = ev.SCHEMA_VERSION[name]
    try:
        ev.decode(name, version, data)
    except msgspec.DecodeError as error:
        raise InvalidMemberError(f"{name} could not be read back: {error}") from error
    work = work_of(run_id, fact) if offered else None
    not_before = fact.not_before_ms if isinstance(fact, ev.TrialRetryScheduled) else None
    identity = event_id(run_id, slot_of(fact))
    head = f"{run_id}\n{name}\n{version}\n".encode()
    return NewEvent(
        partition,
        identity,
        run_id,
        name,
        version,
        data.decode(),
        hashlib.sha256(identity.bytes + head + data).digest(),
        Offer(work, held_ms, not_before) if work else None,
        fact.root if isinstance(fact, ev.RunRequested) else None,
    )


@dataclass(frozen=True, slots=True)
class Append:
    """Events; with ``owner_fence`` only while that fence owns the partition. ``closes`` names
    work that nobody needs any more; ``partition`` counts where there is no event to name it."""

    events: Sequence[NewEvent]
    owner_fence: int | None = None
    closes: Sequence[str] = ()
    partition: int = 0


@dataclass(frozen=True, slots=True)
class NewWork:
    """Work that no event offers and the claim itself brings into being: a judge call.

    The run that claims it pays for it; ``worst`` is the most that it may cost.
    """

    kind: str
    run_id: str
    worst: Cost = FREE


@dataclass(frozen=True, slots=True)
class Claim:
    """Take a piece of work for ``lease_ms``.

    With ``expect`` the claim holds only at that fence: how a lapsed claim is taken over, and how
    events that name the next fence come with it.
    """

    key: str
    lease_ms: int
    expect: int | None = None
    events: Sequence[NewEvent] = ()
    creates: NewWork | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """End held work with the facts it established; ``paid`` is what a judge call did cost."""

    key: str
    fence: int
    events: Sequence[NewEvent] = ()
    blobs: Sequence[bytes] = ()
    paid: Cost | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """End an attempt with the failure as a fact; ``injected`` ones are counted apart too.

    Nobody may claim the work before the driver has answered: a budget is not overdrawn by a
    message that comes twice. A judge call is free at once: its judgment has the budget, and an
    invalid reply is kept in ``blobs``. ``paid`` is what the call did cost, or may have; None: no
    request was sent.
    """

    key: str
    fence: int
    events: Sequence[NewEvent] = ()
    injected: bool = False
    blobs: Sequence[bytes] = ()
    paid: Cost | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Set held work free because its message could not be handled, and count that.

    ``dead``: it was the last time. The work is offered to nobody until somebody reopens it; the
    fact that says so comes with it.
    """

    key: str
    fence: int
    events: Sequence[NewEvent] = ()
    dead: bool = False


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Set held work free because it cannot go on now: nobody is to blame, nothing is counted."""

    key: str
    fence: int
    events: Sequence[NewEvent] = ()


@dataclass(frozen=True, slots=True)
class Renew:
    """Extend a lease."""

    key: str
    fence: int
    lease_ms: int


Member = Append | Claim | Finish | Fail | Release | GiveBack | Renew


def checked(member: Member) -> Member:
    """Return a member that any log can keep; an event that it names twice is named once.

    Raises InvalidMemberError for keys, leases, fences, costs and blobs beyond what is kept, and
    SlotTakenError when two of its own facts fill one slot.
    """
    keys = member.closes if isinstance(member, Append) else (member.key,)
    for key in keys:
        if "\0" in key or not key.isprintable():
            raise InvalidMemberError(f"{key!r} is no key of work")
    fence = getattr(member, "fence", None)
    if fence is not None and not 0 <= fence < 2**63:
        raise InvalidMemberError(f"{fence} is no fence")
    if isinstance(member, Claim | Renew) and not 0 < member.lease_ms <= MAX_LEASE_MS:
        raise InvalidMemberError(f"a lease of {member.lease_ms} ms is not from 1 to {MAX_LEASE_MS}")
    if isinstance(member, Renew):
        return member
    cost = cost_in(member)
    if cost is not None and not all(0 <= part <= MAX_COST for part in cost):
        raise InvalidMemberError(f"{cost} is no cost of a call")
    for data in member.blobs if isinstance(member, Finish | Fail) else ():
        if len(data) > MAX_INLINE_BLOB_BYTES:
            raise InvalidMemberError(f"a blob of {len(data)} bytes does not ride in a batch")
    by_id = {event.event_id: event for event in member.events}
    if len(by_id) == len(member.events):
        return member
    if any(by_id[event.event_id].body_hash != event.body_hash for event in member.events):
        raise SlotTakenError("two facts of one member fill the same slot")
    return replace(member, events=tuple(by_id.values()))


def cost_in(member: Member) -> Cost | None:
    """Return the cost that a member tells: at worst of a claimed call, as paid of an ended one."""
    match member:
        case Claim(creates=NewWork(worst=worst)):
            return worst
        case Finish(paid=paid) | Fail(paid=paid):
            return paid
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a member.

    ``answer``: ok; closed (renewed, but nobody needs the work); lost; fenced; different (another
    fact holds a slot); and of a claim held, done, refused (the run is not running), stale (the
    fence is another, or lapsed and must be expected), early, undecided (a failed attempt awaits
    the driver's answer), unfunded (the run's budget has no room for the call), unknown.
    ``result`` is the position of the member's last event, or of the work's result when done. The
    counts are those before the member, but for ``lost``, which a takeover counts at once.
    """

    answer: str
    fence: int = 0
    failures: int = 0
    injected: int = 0
    lost: int = 0
    result: int | None = None
    breakdowns: int = 0

    @property
    def ok(self) -> bool:
        """Whether the member was applied."""
        return self.answer in ("ok", "closed")

    def check(self) -> Verdict:
        """Return itself when applied, else raise the error of its answer."""
        match self.answer:
            case "ok" | "closed":
                return self
            case "fenced":
                raise FencedError("the partition belongs to another driver")
            case "different":
                raise SlotTakenError("another fact holds the slot")
            case _:
                raise ClaimLostError(f"the claim is gone: {self.answer}")


@dataclass(frozen=True, slots=True)
class OpenWork:
    """Unfinished work as the sweeper sees it."""

    key: str
    kind: str
    run_id: str
    position: int
    held: bool
    expired: bool
    run_state: str
    not_before: datetime | None
    closed: bool


@dataclass(frozen=True, slots=True)
class DeadWork:
    """Work that was given up: its message could not be handled ``breakdowns`` times."""

    key: str
    kind: str
    run_id: str
    position: int
    breakdowns: int


class EventLog(Protocol):
    """The append-only log with the claims beside it."""

    async def commit(self, member: Member) -> Verdict:
        """Write one member in the process's next batch and return its verdict."""
        ...

    async def read(self, partition: int, after: int, limit: int) -> list[Recorded]:
        """Return events of a partition above a position, in order."""
        ...

    async def read_run(self, run_id: str, after: int, limit: int) -> list[Recorded]:
        """Return events of a run above a position, in order."""
        ...

    async def at_slot(self, run_id: str, slot: str) -> Recorded | None:
        """Return the event that holds a slot of a run, if any."""
        ...

    async def at_slots(self, run_id: str, slots: Sequence[str], until: int) -> list[Recorded]:
        """Return the events up to a position that hold some slots of a run, in order."""
        ...

    async def between(
        self, run_id: str, kind: str, after: str, before: str, until: int
    ) -> list[Recorded]:
        """Return a run's events of a type up to a position, in order: those after one slot and
        before another. A slot that no event holds bounds nothing."""
        ...

    async def at_position(self, partition: int, position: int) -> Recorded | None:
        """Return one event."""
        ...

    async def end(self, partition: int) -> int:
        """Return the position of the partition's last event; 0 when it has none."""
        ...

    async def holds(self, key: str, fence: int) -> bool:
        """Tell whether this process holds a piece of work at a fence.

        For who is told held and may have lost the answer to its own claim.
        """
        ...

    async def done(self, keys: Sequence[str]) -> set[str]:
        """Return which of some pieces of work are done."""
        ...

    async def budget(self, run_id: str) -> Budget | None:
        """Return a run's budget, None for one that has none."""
        ...
