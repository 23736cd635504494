"""The owner of a partition: decides, relays, sweeps and projects under one fence.

Every driver follows the log; one of them leads. The others wait as warm standbys and take over
when the leader's presence or its lease ends. What a leader writes carries its fence, so one that
was replaced without noticing writes nothing (docs/invariants.md, I8).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time

from trialog.driver.ancestors import Ancestors
from trialog.driver.decide import Decision, chunks, decide
from trialog.driver.follower import Follower
from trialog.driver.projector import Projector
from trialog.driver.relay import Relay
from trialog.driver.state import CRASH, RunState
from trialog.driver.sweeper import Sweeper
from trialog.proto import events as ev
from trialog.spine import bus as bus_module
from trialog.spine import database, telemetry
from trialog.spine.blobs import BlobsUnavailableError
from trialog.spine.log import Append, FencedError, Recorded, new_event
from trialog.spine.postgres import queries
from trialog.spine.service import Context

_LEASE_MS = 6_000
_POLL_S = 0.25
_STANDBY_S = 0.1
_PRESENCE_S = 0.2
_LEASES_S = 2.0
_PASSED_S = 10.0
_GATHER_S = 0.004
_BLOBS_MS = 1_000
_CHUNK = 500


class Owner:
    """One driver's part in one partition, as standby or leader. ``settled`` is set once it has
    decided what it found undecided, or stands by."""

    def __init__(self, context: Context, partition: int) -> None:
        self._context = context
        self._log = context.log
        self.partition = partition
        self.follower = Follower(context.log, context.blobs, partition)
        self._relay = Relay(
            context.log, context.bus, partition, context.settings.pool, self.follower.wants
        )
        self._ancestors = Ancestors(context.log)
        self._projector = Projector(context.log, partition)
        self._sweeper = Sweeper(
            context.log, context.bus, self._relay, partition, context.settings.pool
        )
        self._wake = asyncio.Event()
        self._wakes_ms: dict[str, float] = {}
        self._random = random.SystemRandom()
        self.following = False
        self.settled = asyncio.Event()
        self.leading = False

    async def run(self) -> None:
        """Follow, and lead whenever nobody else does, until cancelled."""
        log = telemetry.logger().bind(partition=self.partition)
        await self._context.bus.on_hint(self.partition, self._wake.set)
        while True:
            try:
                await self.follower.begin()
                self.following = True
                await self._stand_by_and_lead(log)
            except* FencedError:
                log.warning("replaced by another driver: standing by")
            except* database.DOWN as errors:
                log.warning("waiting for Postgres", error=repr(errors.exceptions[0]))
                await asyncio.sleep(_STANDBY_S)

    async def _stand_by_and_lead(self, log: telemetry.Log) -> None:
        fence = await self._become_owner()
        log.info("leading", fence=fence, runs=len(self.follower.states))
        self.leading = True
        try:
            await self._lead(fence)
        finally:
            self.leading = False
            await asyncio.shield(self._leave(fence))

    async def _leave(self, fence: int) -> None:
        """Let a standby in at once; when Postgres is away, the lease's end does."""
        with contextlib.suppress(*database.DOWN):
            async with self._log.database.connection() as connection:
                await connection.execute(
                    queries.LEAVE_PARTITION, self.partition, self._log.incarnation, fence
                )

    async def _become_owner(self) -> int:
        """Follow the log until the partition is free, and take it."""
        while True:
            while await self.follower.catch_up():
                pass
            async with self._log.database.connection() as connection:
                head = await connection.fetchrow(queries.OWNER, self.partition)
                assert head is not None, f"partition {self.partition} does not exist"
                owner, _, lapsed = head
                gone = [row[0] for row in await connection.fetch(queries.GONE)]
                if lapsed or owner in gone:
                    fence = await connection.fetchval(
                        queries.OWN_PARTITION,
                        self.partition,
                        self._log.incarnation,
                        _LEASE_MS,
                        owner if owner in gone else None,
                    )
                    if fence is not None:
                        return fence
            self.settled.set()
            await asyncio.sleep(_STANDBY_S)

    async def _lead(self, fence: int) -> None:
        """Do the owner's work until fenced or cancelled."""
        relayed: asyncio.Queue[list[Recorded]] = asyncio.Queue(maxsize=64)
        projected: asyncio.Queue[list[Recorded]] = asyncio.Queue(maxsize=256)
        while await self.follower.catch_up():
            pass
        start = self.follower.position
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_partition(fence), name="keep-partition")
            group.create_task(self._relay_all(relayed, start, fence), name="relay")
            group.create_task(self._project_all(projected, start, fence), name="project")
            group.create_task(self._sweep_presence(), name="sweep-presence")
            group.create_task(self._sweep_stream(fence), name="sweep-stream")
            await self._decide_all((relayed, projected), fence)

    async def _keep_partition(self, fence: int) -> None:
        while True:
            await asyncio.sleep(_LEASE_MS / 3000)
            async with self._log.database.connection() as connection:
                kept = await connection.fetchval(
                    queries.KEEP_PARTITION,
                    self.partition,
                    self._log.incarnation,
                    fence,
                    _LEASE_MS,
                )
            if not kept:
                raise FencedError("the partition's lease was lost")

    async def _decide_all(
        self, feeds: tuple[asyncio.Queue[list[Recorded]], ...], fence: int
    ) -> None:
        """The main loop: follow, feed the relay and the views, decide for what changed."""
        changed = set(self.follower.states)
        while True:
            await asyncio.gather(*(self._decide_run(run, fence) for run in sorted(changed)))
            self.settled.set()
            events = await self._next_events()
            if events:
                for feed in feeds:
                    await feed.put(events)
            changed = {event.run_id for event in events} | self._due()
            if any(event.type in ev.RUN_ENDS for event in events):
                changed |= set(self.follower.states)
            resumed = [event.run_id for event in events if event.type == "RunResumed"]
            for run_id in resumed:
                await self._offer_resumed(run_id)

    async def _next_events(self) -> list[Recorded]:
        """Return what is new, waiting for a hint, a poll's time or the next deadline."""
        self._wake.clear()
        events = await self.follower.catch_up()
        if events:
            return events
        pause_s = _POLL_S
        if self._wakes_ms:
            ahead_s = (min(self._wakes_ms.values()) - self.follower.now_ms()) / 1000
            pause_s = min(max(ahead_s, 0.0), _POLL_S)
        with contextlib.suppress(TimeoutError):
            # Not wait_for, which may swallow a cancellation that comes with the event.
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
            # Hints come one a batch of some worker; a moment later there is more to read at once.
            await asyncio.sleep(_GATHER_S)
        return await self.follower.catch_up()

    def _due(self) -> set[str]:
        now_ms = self.follower.now_ms()
        due = {run_id for run_id, at_ms in self._wakes_ms.items() if at_ms <= now_ms}
        for run_id in due:
            del self._wakes_ms[run_id]
        return due

    async def _decide_run(self, run_id: str, fence: int) -> None:
        state = self.follower.states.get(run_id)
        if state is None:
            return
        lineage = await self._ancestors.of(state)
        decision = decide(state, self.follower.now_ms(), self._random.random, lineage)
        self._wakes_ms.pop(run_id, None)
        if decision.wake_ms is not None:
            self._wakes_ms[run_id] = decision.wake_ms
        if decision.facts or decision.closes:
            await self._record(state, decision, fence)
        elif state.finished:
            self.follower.states.pop(run_id, None)
            self._ancestors.forget(run_id)

    async def _record(self, state: RunState, decision: Decision, fence: int) -> None:
        """Append a decision. What another fact overtook is decided anew once it is folded."""
        try:
            for data in decision.blobs:
                await self._context.blobs.put(data)
        except BlobsUnavailableError as error:
            telemetry.logger().warning("a decision waits for the blob store", error=str(error))
            self._wakes_ms[state.run_id] = self.follower.now_ms() + _BLOBS_MS
            return
        closes = decision.closes
        for chunk in chunks(decision.facts, _CHUNK):
            events = [new_event(state.run_id, fact, partition=self.partition) for fact in chunk]
            member = Append(events, fence, closes, self.partition)
            verdict = await self._log.commit(member)
            closes = ()
            if verdict.answer == "different":
                self._wake.set()
                self._wakes_ms[state.run_id] = self.follower.now_ms()
                return
            verdict.check()
        state.to_close.clear()
        self._wake.set()
        if any(isinstance(f, ev.FaultInjected) and f.kind == CRASH for f in decision.facts):
            # The fault that the run asked for: a real SIGKILL, after it stands on the log.
            os.kill(os.getpid(), signal.SIGKILL)

    async def _offer_resumed(self, run_id: str) -> None:
        try:
            await self._sweeper.offer_all(run_id)
        except bus_module.DOWN as error:
            telemetry.logger().warning("resumed work not offered yet", error=repr(error))

    async def _relay_all(self, feed: asyncio.Queue[list[Recorded]], start: int, fence: int) -> None:
        await self._relay.begin()
        await self._check_stream(fence)
        async for events in self._from_cursor(self._relay.position, start, feed):
            pause_s = 0.05
            while True:
                try:
                    await self._relay.publish(events, fence)
                    break
                except bus_module.DOWN as error:
                    telemetry.logger().warning("work not offered yet", error=repr(error))
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, 1.0)
                    await self._check_stream(fence)

    async def _project_all(
        self, feed: asyncio.Queue[list[Recorded]], start: int, fence: int
    ) -> None:
        cursor = await self._projector.cursor()
        async for events in self._from_cursor(cursor, start, feed):
            while not feed.empty() and len(events) < 4000:
                events = [*events, *feed.get_nowait()]
            await self._projector.apply(events, fence)

    async def _from_cursor(self, cursor: int, start: int, feed: asyncio.Queue[list[Recorded]]):
        """Yield what lies between a cursor and the start, then what the feed brings."""
        while cursor < start:
            events = await self._log.read(self.partition, cursor, 1000)
            events = [event for event in events if event.position <= start]
            if not events:
                break
            yield events
            cursor = events[-1].position
        while True:
            yield await feed.get()

    async def _sweep_presence(self) -> None:
        """Void the gone at once; look for ended leases now and then."""
        looked_at = 0.0
        while True:
            try:
                gone = await self._sweeper.void_the_gone()
                if gone or time.monotonic() - looked_at > _LEASES_S:
                    looked_at = time.monotonic()
                    await self._sweeper.offer_lapsed()
            except (*bus_module.DOWN, *database.DOWN) as error:
                looked_at = 0.0
                telemetry.logger().warning("sweep put off", error=repr(error))
            await asyncio.sleep(_PRESENCE_S)

    async def _sweep_stream(self, fence: int) -> None:
        while True:
            await asyncio.sleep(_PASSED_S / 5)
            try:
                await self._check_stream(fence)
                await self._sweeper.offer_passed()
            except (*bus_module.DOWN, *database.DOWN) as error:
                telemetry.logger().warning("sweep put off", error=repr(error))

    async def _check_stream(self, fence: int) -> None:
        """A stream that is not the one we wrote to has lost everything: offer it all again."""
        try:
            stream = await self._context.bus.ensure_stream()
            if stream.created == self._relay.stream:
                return
            offered = await self._sweeper.offer_all() if self._relay.stream else 0
            stream = await self._context.bus.ensure_stream()
        except bus_module.DOWN as error:
            telemetry.logger().warning("waiting for NATS", error=repr(error))
            return
        self._relay.adopt(stream)
        await self._relay.save(fence)
        telemetry.logger().info("stream adopted", created=stream.created, offered=offered)
