"""Follows a partition of the log and keeps the state of every run that is not over."""

from __future__ import annotations

import time
from collections.abc import Sequence

from asyncpg.prepared_stmt import PreparedStatement
from prometheus_client import Gauge

from trialog.driver import state as fold
from trialog.driver.state import RunState
from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.tasks.manifest import Manifest
from trialog.spine.blobs import BlobStore
from trialog.spine.log import Recorded
from trialog.spine.postgres import queries
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.runs import tasks_of

_PAGE = 2000

REPLAY_SECONDS = Gauge("trialog_replay_seconds", "The last replay: reading and folding.")
REPLAY_STEPS = Gauge("trialog_replay_steps", "Optimizer steps that the last replay passed.")
REPLAY_EVENTS = Gauge("trialog_replay_events", "Events that the last replay folded.")


class Follower:
    """The live fold. A standby follows as the owner does, and so can lead at once."""

    def __init__(self, log: PostgresLog, blobs: BlobStore, partition: int) -> None:
        self._log, self._blobs = log, blobs
        self.partition = partition
        self.position = 0
        self.states: dict[str, RunState] = {}
        self._clock_ahead_ms = 0.0

    async def begin(self) -> None:
        """Fold the runs that are not over, from nothing; ended ones are not even read.

        How long that took, from the first event asked for to the last one folded, is a metric.
        """
        self.states.clear()
        self.position = await self._log.end(self.partition)
        async with self._log.database.connection() as connection:
            rows = await connection.fetch(queries.ACTIVE_RUNS, self.partition)
            postgres_ms = await connection.fetchval(queries.CLOCK_MS)
            assert postgres_ms is not None
            self._clock_ahead_ms = postgres_ms - time.time() * 1000
            reading = await connection.prepare(queries.READ_TO_FOLD)
            # Its first plan is the connection's cost, not the replay's.
            await reading.fetch("", 0, fold.UNFOLDED, 1)
            started = time.perf_counter()
            folded = 0
            for row in rows:
                folded += await self._fold_run(reading, row["run_id"])
            REPLAY_SECONDS.set(time.perf_counter() - started)
            REPLAY_EVENTS.set(folded)
            REPLAY_STEPS.set(sum(state.weights_version for state in self.states.values()))

    async def _fold_run(self, reading: PreparedStatement, run_id: str) -> int:
        """Fold one run's events and return how many there are."""
        after = folded = 0
        while True:
            rows = await reading.fetch(run_id, after, fold.UNFOLDED, _PAGE)
            for position, partition, kind, version, data, at_ms in rows:
                fact = ev.decode(kind, version, data)
                tasks = await self._tasks(fact)
                self._fold_one(run_id, partition, position, fact, at_ms, tasks)
            folded += len(rows)
            if len(rows) < _PAGE:
                return folded
            after = rows[-1][0]

    async def catch_up(self) -> list[Recorded]:
        """Read and fold what came since; at most a page, empty when there is nothing."""
        events = await self._log.read(self.partition, self.position, _PAGE)
        if events:
            await self._fold(events)
            self.position = events[-1].position
        return events

    async def _fold(self, events: Sequence[Recorded]) -> None:
        for event in events:
            at_ms = event.recorded_at.timestamp() * 1000
            fact = event.fact()
            tasks = await self._tasks(fact)
            self._fold_one(event.run_id, event.partition, event.position, fact, at_ms, tasks)

    async def _tasks(self, fact: ev.Fact) -> Manifest:
        """Return the tasks of a run that begins: bytes are read before they are folded."""
        if not isinstance(fact, ev.RunRequested) or fact.spec.get("tasks") is None:
            return ()
        return await tasks_of(self._blobs, runspec.load(fact.spec))

    def _fold_one(
        self,
        run_id: str,
        partition: int,
        position: int,
        fact: ev.Fact,
        at_ms: float,
        tasks: Manifest,
    ) -> None:
        state = self.states.get(run_id)
        if state is None:
            if not isinstance(fact, ev.RunRequested):
                return  # of a run that was over when we began
            state = self.states[run_id] = fold.begin(run_id, partition, fact, tasks)
        if position > state.position:
            fold.evolve(state, fact, position, at_ms)

    def now_ms(self) -> float:
        """Return Postgres time: deadlines are counted from recorded times."""
        return time.time() * 1000 + self._clock_ahead_ms

    def wants(self, event: Recorded) -> bool:
        """Whether the work that an event offers is still wanted.

        Judging a trial that was skipped meanwhile would be paid for nothing.
        """
        state = self.states.get(event.run_id)
        if state is None:
            return False
        fact = event.fact()
        match fact:
            case ev.TrialRequested() | ev.TrajectoryRecorded() | ev.TrialVerified():
                return state.needs(fact.trial_id)
            case _:
                return state.end is None
