"""The group-commit writer: all writes of a process share transactions.

While one batch is being committed the next one gathers, so a busy process pays one round trip and
one fsync for many members, and an idle one commits at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from trialog.spine.log import Append, Member, Renew, Verdict

MAX_MEMBERS = 256
MAX_BYTES = 1_000_000


@dataclass(slots=True)
class _Entry:
    member: Member
    keys: tuple[object, ...]
    size: int
    done: asyncio.Future[Verdict]


Commit = Callable[[Sequence[Member]], Awaitable[list[Verdict]]]


class GroupWriter:
    """Gathers members into batches and commits them one batch at a time, in order.

    ``commit`` writes a batch in one transaction. ``is_data_error`` tells an error that one
    member's data caused, after which members are tried singly, from one of the connection, which
    every member of the batch sees.
    """

    def __init__(self, commit: Commit, is_data_error: Callable[[Exception], bool]) -> None:
        self._commit = commit
        self._is_data_error = is_data_error
        self._urgent: deque[_Entry] = deque()
        self._queue: deque[_Entry] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    async def write(self, member: Member) -> Verdict:
        """Queue a member and return its verdict once its batch is committed.

        Raises what the database raised when the batch could not be written.
        """
        if self._closing:
            raise RuntimeError("the writer is closed")
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="group-writer")
        done = asyncio.get_running_loop().create_future()
        queue = self._urgent if isinstance(member, Renew) else self._queue
        queue.append(_Entry(member, _keys(member), _size(member), done))
        self._wake.set()
        # A caller that is cancelled must not cancel what is already on its way.
        return await asyncio.shield(done)

    async def close(self) -> None:
        """Commit what is queued, then stop."""
        self._closing = True
        self._wake.set()
        if self._task:
            await self._task

    async def _run(self) -> None:
        while True:
            if not self._queue and not self._urgent:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._write_batch(self._next_batch())

    def _next_batch(self) -> list[_Entry]:
        """Take what fits, renewals first; a key or an event goes into a batch once."""
        batch: list[_Entry] = []
        taken: set[object] = set()
        size = 0
        for queue in (self._urgent, self._queue):
            kept: list[_Entry] = []
            while queue and len(batch) < MAX_MEMBERS and (not batch or size < MAX_BYTES):
                entry = queue.popleft()
                if taken.isdisjoint(entry.keys):
                    batch.append(entry)
                    size += entry.size
                else:
                    kept.append(entry)
                # Also what waits is taken: a later member must not overtake it.
                taken.update(entry.keys)
            queue.extendleft(reversed(kept))
        return batch

    async def _write_batch(self, batch: list[_Entry]) -> None:
        try:
            verdicts = await self._commit([entry.member for entry in batch])
        except Exception as error:  # it goes to the callers that wait for it
            if len(batch) > 1 and self._is_data_error(error):
                for entry in batch:
                    await self._write_batch([entry])
                return
            for entry in batch:
                if not entry.done.cancelled():
                    entry.done.set_exception(error)
                    entry.done.exception()  # seen, also when the caller was cancelled
            return
        for entry, verdict in zip(batch, verdicts, strict=True):
            if not entry.done.cancelled():
                entry.done.set_result(verdict)


def _keys(member: Member) -> tuple[object, ...]:
    """Return the rows a member touches: work keys and event ids."""
    if isinstance(member, Renew):
        return (member.key,)
    events = tuple(event.event_id for event in member.events)
    offers = tuple(event.offer.work.key for event in member.events if event.offer)
    own = tuple(member.closes) if isinstance(member, Append) else (member.key,)
    return events + offers + own


def _size(member: Member) -> int:
    if isinstance(member, Renew):
        return 64
    blobs = getattr(member, "blobs", ())
    return 256 + sum(len(event.data) + 256 for event in member.events) + sum(map(len, blobs))
