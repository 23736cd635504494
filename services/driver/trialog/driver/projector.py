"""Keeps the read models: folds the log into run_view and trial_view under the owner's fence.

The tables and their cursor move in one transaction, and a document knows the position of its last
event: a batch that is applied again, because nobody saw whether it was committed, changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from trialog.driver import queries
from trialog.driver.views import RUN_ENDED, TRIAL_ENDED, Doc, evolve_run, evolve_trial, trial_of
from trialog.proto import events as ev
from trialog.spine.database import driver_connection
from trialog.spine.log import FencedError, Recorded
from trialog.spine.postgres import queries as spine_queries
from trialog.spine.postgres.log import PostgresLog

VIEWS_CURSOR = "views"
_KEPT_RUNS = 256
_KEPT_TRIALS = 20_000
_PAGE = 2000

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict)

_Key = TypeVar("_Key", bound=Hashable)
TrialKey = tuple[str, str]


class Projector:
    """Projects one partition. Not for concurrent use."""

    def __init__(self, log: PostgresLog, partition: int) -> None:
        self._log = log
        self.partition = partition
        self._runs = _Documents[str](_KEPT_RUNS)
        self._trials = _Documents[TrialKey](_KEPT_TRIALS)

    async def cursor(self) -> int:
        """Return the position up to which the read models are current."""
        async with driver_connection(self._log.engine) as connection:
            row = await connection.fetchrow(spine_queries.CURSOR, VIEWS_CURSOR, self.partition)
        return row[0] if row else 0

    async def apply(self, events: Sequence[Recorded], fence: int) -> None:
        """Fold events of the partition that follow the cursor, in order, without a gap.

        One upsert a run and a trial, however many events are about it. After any error the same
        events may be given again. Raises FencedError when the partition has another owner.
        """
        if not events:
            return
        facts = [(event, event.fact()) for event in events]
        try:
            await self._load(facts)
            runs, trials = self._fold(facts)
            kept = await self._write(events[-1].position, fence, runs, trials)
        except BaseException:
            # The documents in memory are ahead of their tables now, or nobody knows.
            self._runs.clear()
            self._trials.clear()
            raise
        if not kept:
            self._runs.clear()
            self._trials.clear()
            raise FencedError(f"partition {self.partition} belongs to another driver")
        self._runs.shed(runs, RUN_ENDED)
        self._trials.shed(trials, TRIAL_ENDED)

    async def rebuild(self, fence: int) -> int:
        """Empty the read models and fold the whole log anew; return the position reached.

        Raises FencedError when the partition has another owner.
        """
        self._runs.clear()
        self._trials.clear()
        async with driver_connection(self._log.engine) as connection:
            kept = await connection.fetchval(
                queries.FORGET_VIEWS, self.partition, self._log.incarnation, fence
            )
        if not kept:
            raise FencedError(f"partition {self.partition} belongs to another driver")
        position = 0
        while events := await self._log.read(self.partition, position, _PAGE):
            await self.apply(events, fence)
            position = events[-1].position
        return position

    async def _load(self, facts: Sequence[tuple[Recorded, ev.Fact]]) -> None:
        """Fetch the documents that the events change, are not in memory and not made by them."""
        runs: dict[str, None] = {}
        trials: dict[TrialKey, None] = {}
        for event, fact in facts:
            run_id = event.run_id
            if run_id not in self._runs.documents and not isinstance(fact, ev.RunRequested):
                runs[run_id] = None
            trial_id = trial_of(fact)
            if trial_id is None or isinstance(fact, ev.TrialRequested):
                continue
            if (run_id, trial_id) not in self._trials.documents:
                trials[run_id, trial_id] = None
        if not runs and not trials:
            return
        async with driver_connection(self._log.engine) as connection:
            if runs:
                rows = await connection.fetch(queries.RUN_DOCS, list(runs))
                self._runs.documents |= {row[0]: _decoder.decode(row[1]) for row in rows}
            if trials:
                rows = await connection.fetch(
                    queries.TRIAL_DOCS, [key[0] for key in trials], [key[1] for key in trials]
                )
                found = {(row[0], row[1]): _decoder.decode(row[2]) for row in rows}
                self._trials.documents |= found

    def _fold(
        self, facts: Sequence[tuple[Recorded, ev.Fact]]
    ) -> tuple[dict[str, Doc], dict[TrialKey, Doc]]:
        """Return the documents that the events changed."""
        runs: dict[str, Doc] = {}
        trials: dict[TrialKey, Doc] = {}
        for event, fact in facts:
            run_id = event.run_id
            run = evolve_run(self._runs.documents.get(run_id), event, fact)
            if run is not None:
                self._runs.documents[run_id] = runs[run_id] = run
            trial_id = trial_of(fact)
            if trial_id is None:
                continue
            key = (run_id, trial_id)
            trial = evolve_trial(self._trials.documents.get(key), event, fact)
            if trial is not None:
                self._trials.documents[key] = trials[key] = trial
        return runs, trials

    async def _write(
        self, position: int, fence: int, runs: dict[str, Doc], trials: dict[TrialKey, Doc]
    ) -> bool:
        # In order of the keys: two projectors that meet during a takeover must not deadlock.
        run_rows = [runs[run_id] for run_id in sorted(runs)]
        trial_rows = [(key[0], trials[key]) for key in sorted(trials)]
        async with driver_connection(self._log.engine) as connection:
            kept = await connection.fetchval(
                queries.PROJECT,
                self.partition,
                position,
                self._log.incarnation,
                fence,
                [doc["run_id"] for doc in run_rows],
                [doc["position"] for doc in run_rows],
                [doc["state"] for doc in run_rows],
                [datetime.fromisoformat(doc["created_at"]) for doc in run_rows],
                [_text(doc["labels"]) for doc in run_rows],
                [_text(doc) for doc in run_rows],
                [run_id for run_id, _ in trial_rows],
                [doc["trial_id"] for _, doc in trial_rows],
                [doc["step"] for _, doc in trial_rows],
                [doc["state"] for _, doc in trial_rows],
                [_text(doc) for _, doc in trial_rows],
            )
        return bool(kept)


class _Documents(Generic[_Key]):
    """Documents in memory, those that were used last; what has ended is hardly used again."""

    def __init__(self, kept: int) -> None:
        self.documents: OrderedDict[_Key, Doc] = OrderedDict()
        self._kept = kept

    def shed(self, used: dict[_Key, Doc], ended: frozenset[str]) -> None:
        """After a batch: let go of what ended in it, and of the oldest above the limit."""
        for key, doc in used.items():
            if doc["state"] in ended:
                del self.documents[key]
            else:
                self.documents.move_to_end(key)
        while len(self.documents) > self._kept:
            self.documents.popitem(last=False)

    def clear(self) -> None:
        """Let go of everything."""
        self.documents.clear()


def _text(value: object) -> str:
    return _encoder.encode(value).decode()
