"""What the tables of migrations/versions/v0001/1_schema.sql hold, as Python rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from trialog.spine.budget import Cost
from trialog.spine.log import Recorded

NEVER = datetime.min.replace(tzinfo=UTC)
UNDECIDED = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class Head:
    """End of a partition, and the driver that owns it."""

    position: int = 0
    hash: bytes = b""
    owner: int | None = None
    owner_fence: int = 0
    lease_until: datetime = NEVER


@dataclass(slots=True)
class EventRow:
    """An event with its place in the hash chain."""

    recorded: Recorded
    body_hash: bytes
    prev_hash: bytes
    hash: bytes


@dataclass(slots=True)
class RunRow:
    """A run: running, paused or ended."""

    run_id: str
    partition: int
    root: str
    state: str = "running"
    pauses: int = 0


@dataclass(slots=True)
class WorkRow:
    """A piece of work; ``incarnation`` is the process that holds it. Of a judge call that is held,
    ``payer`` is the run that pays and ``reserved`` what its budget has set aside."""

    key: str
    kind: str
    run_id: str
    partition: int
    position: int
    fence: int = 0
    incarnation: int | None = None
    lease_until: datetime = NEVER
    failures: int = 0
    injected: int = 0
    lost: int = 0
    breakdowns: int = 0
    not_before: datetime | None = None
    closed: bool = False
    dead: bool = False
    done: bool = False
    result: int | None = None
    payer: str | None = None
    reserved: Cost | None = None
