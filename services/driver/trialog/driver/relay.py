"""The relay: every event that offers work is published to the bus, with its id as message id.

The bus may lose everything at any time. The relay remembers which stream it wrote to and up to
where; another stream makes it offer all unfinished work again (docs/invariants.md, I10).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence

import msgspec

from trialog.proto import events as ev
from trialog.proto.work import WorkMessage, work_of
from trialog.spine.bus import Bus, StreamState, subject_of
from trialog.spine.log import FencedError, Recorded
from trialog.spine.postgres import queries
from trialog.spine.postgres.log import PostgresLog

_OFFERS = frozenset(
    {
        "WorldRequested",
        "TrialRequested",
        "TrajectoryRecorded",
        "TrialVerified",
        "StepRequested",
        "TrialRetryScheduled",
    }
)
_SAVE_EVERY_S = 0.5
_encoder = msgspec.json.Encoder()


class Relay:
    """Publishes in log order. Chained work (a new TrajectoryRecorded offers verifying) is held by
    the worker that recorded it, so it is not published; the sweeper offers it when that worker
    dies. A recovered trajectory that is to be verified anew is published.
    ``wanted`` tells whether an event's work is still of use."""

    def __init__(
        self,
        log: PostgresLog,
        bus: Bus,
        partition: int,
        pool: str,
        wanted: Callable[[Recorded], bool],
    ) -> None:
        self._log, self._bus, self._partition, self._pool = log, bus, partition, pool
        self._wanted = wanted
        self.position = 0
        self.stream: str | None = None
        self._saved_at = 0.0
        self._sequence = 0
        # Up to a position the stream's sequences are at most this: for telling what has passed.
        self._positions: list[int] = []
        self._sequences: list[int] = []

    async def begin(self) -> None:
        """Load the cursor, then offer what came between it and now by reading the log."""
        async with self._log.database.connection() as connection:
            row = await connection.fetchrow(queries.CURSOR, "relay", self._partition)
        if row is not None:
            saved = msgspec.json.decode(row[1])
            self.position, self._sequence = row[0], saved["sequence"]
            self.stream = saved["stream"]
            self._note(self.position, self._sequence)

    async def publish(self, events: Sequence[Recorded], fence: int) -> None:
        """Publish what these events offer and move the cursor. Raises DOWN, FencedError."""
        messages = [
            message_of(event, self._pool)
            for event in events
            if event.type in _OFFERS and _is_offered(event) and self._wanted(event)
        ]
        if messages:
            sequences = await self._bus.offer(messages)
            self._sequence = max(self._sequence, *sequences)
        self.position = events[-1].position
        if messages:
            self._note(self.position, self._sequence)
        if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
            await self.save(fence)

    async def save(self, fence: int) -> None:
        """Store the cursor. A lost save costs offers that are known already, and dropped."""
        self._saved_at = time.monotonic()
        state = _encoder.encode({"stream": self.stream, "sequence": self._sequence}).decode()
        async with self._log.database.connection() as connection:
            moved = await connection.fetchval(
                queries.MOVE_CURSOR,
                "relay",
                self._partition,
                self.position,
                state,
                self._log.incarnation,
                fence,
            )
        if not moved:
            raise FencedError("the relay's partition belongs to another driver")

    def adopt(self, stream: StreamState) -> None:
        """Go on with another stream, in which all that is open stands at most at its end."""
        self.stream, self._sequence = stream.created, stream.last_sequence
        self._positions.clear()
        self._sequences.clear()
        self._note(self.position, self._sequence)

    def _note(self, position: int, sequence: int) -> None:
        self._positions.append(position)
        self._sequences.append(sequence)
        if len(self._positions) > 20_000:
            del self._positions[:10_000], self._sequences[:10_000]

    def sequence_of(self, position: int) -> int:
        """Return a stream sequence that the offer at this position is not beyond."""
        index = bisect_left(self._positions, position)
        return self._sequences[index] if index < len(self._sequences) else self._sequence


def _is_offered(event: Recorded) -> bool:
    fact = event.fact()
    if isinstance(fact, ev.TrajectoryRecorded) and fact.provenance is None:
        return False
    return work_of(event.run_id, fact) is not None


def message_of(event: Recorded, pool: str, sweep: int | None = None) -> tuple[str, bytes, str]:
    """Return subject, payload and message id of an event that offers work."""
    fact = event.fact()
    work = work_of(event.run_id, fact)
    assert work is not None
    message = WorkMessage(
        work.key,
        work.kind,
        event.run_id,
        event.partition,
        event.position,
        event.type,
        event.schema_version,
        event.data,
        getattr(fact, "not_before_ms", 0),
    )
    suffix = "" if sweep is None else f":sweep:{sweep}"
    return subject_of(work.kind, pool), _encoder.encode(message), f"{event.event_id}{suffix}"
