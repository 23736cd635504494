"""Keeps the read models: folds the log into run_view, step_view and trial_view under the owner's
fence.

The tables and their cursor move in one transaction, and a document knows the position of its last
event: a batch that is applied again, because nobody saw whether it was committed, changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from trialog.driver import queries
from trialog.driver.views import (
    RUN_ENDED,
    STEP_ENDED,
    TRIAL_ENDED,
    Doc,
    evolve_run,
    evolve_step,
    evolve_trial,
    step_of,
    trial_of,
)
from trialog.proto import events as ev
from trialog.spine.log import FencedError, Recorded
from trialog.spine.postgres import queries as spine_queries
from trialog.spine.postgres.log import PostgresLog

VIEWS_CURSOR = "views"
_KEPT_RUNS = 256
_KEPT_STEPS = 1024
_KEPT_TRIALS = 20_000
_PAGE = 2000

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict)

_Key = TypeVar("_Key", bound=Hashable)
StepKey = tuple[str, int]
TrialKey = tuple[str, str]
Facts = Sequence[tuple[Recorded, ev.Fact]]


@dataclass(slots=True)
class _Changed:
    """Documents that a batch changed, each once however many events were about it; and the labels
    of the runs that it began."""

    runs: dict[str, Doc] = field(default_factory=dict[str, Doc])
    steps: dict[StepKey, Doc] = field(default_factory=dict[StepKey, Doc])
    trials: dict[TrialKey, Doc] = field(default_factory=dict[TrialKey, Doc])
    labels: dict[str, Any] = field(default_factory=dict[str, Any])


class Projector:
    """Projects one partition. Not for concurrent use."""

    def __init__(self, log: PostgresLog, partition: int) -> None:
        self._log = log
        self.partition = partition
        self._runs = _Documents[str](_KEPT_RUNS, RUN_ENDED)
        self._steps = _Documents[StepKey](_KEPT_STEPS, STEP_ENDED)
        self._trials = _Documents[TrialKey](_KEPT_TRIALS, TRIAL_ENDED)

    async def cursor(self) -> int:
        """Return the position up to which the read models are current."""
        async with self._log.database.connection() as connection:
            row = await connection.fetchrow(spine_queries.CURSOR, VIEWS_CURSOR, self.partition)
        return row[0] if row else 0

    async def apply(self, events: Sequence[Recorded], fence: int) -> None:
        """Fold events of the partition that follow the cursor, in order, without a gap.

        One upsert a run, a step and a trial, however many events are about it. After any error
        the same events may be given again. Raises FencedError when the partition has another owner.
        """
        if not events:
            return
        facts = [(event, event.fact()) for event in events]
        try:
            await self._load(facts)
            changed = self._fold(facts)
            kept = await self._write(events[-1].position, fence, changed)
        except BaseException:  # a cancellation too: what is in memory may be ahead of the tables
            self._forget()
            raise
        if not kept:
            self._forget()
            raise FencedError(f"partition {self.partition} belongs to another driver")
        self._runs.shed(changed.runs)
        self._steps.shed(changed.steps)
        self._trials.shed(changed.trials)

    async def rebuild(self, fence: int) -> int:
        """Empty the read models and fold the whole log anew; return the position reached.

        Raises FencedError when the partition has another owner.
        """
        self._forget()
        async with self._log.database.connection() as connection:
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

    def _forget(self) -> None:
        """Let go of documents that may be ahead of their tables."""
        for kept in (self._runs, self._steps, self._trials):
            kept.documents.clear()

    async def _load(self, facts: Facts) -> None:
        """Fetch the documents that the events change, are not in memory and not made by them."""
        runs: dict[str, None] = {}
        steps: dict[StepKey, None] = {}
        trials: dict[TrialKey, None] = {}
        for event, fact in facts:
            run_id = event.run_id
            if run_id not in self._runs.documents and not isinstance(fact, ev.RunRequested):
                runs[run_id] = None
            step, trial_id = step_of(fact), trial_of(fact)
            if step is not None and (run_id, step) not in self._steps.documents:
                steps[run_id, step] = None
            if trial_id is None or isinstance(fact, ev.TrialRequested):
                continue
            if (run_id, trial_id) not in self._trials.documents:
                trials[run_id, trial_id] = None
        if not (runs or steps or trials):
            return
        async with self._log.database.connection() as connection:
            if runs:
                rows = await connection.fetch(queries.RUN_DOCS, list(runs))
                self._runs.documents |= {row[0]: _decoder.decode(row[1]) for row in rows}
            if steps:
                rows = await connection.fetch(queries.STEP_DOCS, *_columns(steps))
                self._steps.documents |= {(r[0], r[1]): _decoder.decode(r[2]) for r in rows}
            if trials:
                rows = await connection.fetch(queries.TRIAL_DOCS, *_columns(trials))
                self._trials.documents |= {(r[0], r[1]): _decoder.decode(r[2]) for r in rows}

    def _fold(self, facts: Facts) -> _Changed:
        changed = _Changed()
        runs, steps, trials = self._runs.documents, self._steps.documents, self._trials.documents
        for event, fact in facts:
            run_id = event.run_id
            run = evolve_run(runs.get(run_id), event, fact)
            if run is not None:
                runs[run_id] = changed.runs[run_id] = run
            if isinstance(fact, ev.RunRequested):
                changed.labels[run_id] = fact.spec["labels"]
            number, trial_id = step_of(fact), trial_of(fact)
            if run is not None and number is not None:
                step_key = (run_id, number)
                step = evolve_step(steps.get(step_key), event, fact)
                if step is not None:
                    steps[step_key] = changed.steps[step_key] = step
            if trial_id is not None:
                trial_key = (run_id, trial_id)
                trial = evolve_trial(trials.get(trial_key), event, fact)
                if trial is not None:
                    trials[trial_key] = changed.trials[trial_key] = trial
        return changed

    async def _write(self, position: int, fence: int, changed: _Changed) -> bool:
        # In order of the keys: two projectors that meet during a takeover must not deadlock.
        runs = [changed.runs[run_id] for run_id in sorted(changed.runs)]
        steps = sorted(changed.steps.items(), key=lambda one: one[0])
        trials = sorted(changed.trials.items(), key=lambda one: one[0])
        async with self._log.database.connection() as connection:
            kept = await connection.fetchval(
                queries.PROJECT,
                self.partition,
                position,
                self._log.incarnation,
                fence,
                [doc["run_id"] for doc in runs],
                [doc["position"] for doc in runs],
                [doc["state"] for doc in runs],
                [datetime.fromisoformat(doc["created_at"]) for doc in runs],
                # Labels never change: what is told of a run that is there already is not looked at.
                [_text(changed.labels.get(doc["run_id"], {})) for doc in runs],
                [_text(doc) for doc in runs],
                *_columns(key for key, _ in steps),
                [_text(doc) for _, doc in steps],
                *_columns(key for key, _ in trials),
                [doc["step"] for _, doc in trials],
                [doc["state"] for _, doc in trials],
                [doc["reward"] for _, doc in trials],
                [_text(doc) for _, doc in trials],
            )
        return bool(kept)


class _Documents(Generic[_Key]):
    """Documents in memory, those that were used last; what has ended is hardly used again."""

    def __init__(self, kept: int, ended: frozenset[str]) -> None:
        self.documents: OrderedDict[_Key, Doc] = OrderedDict()
        self._kept, self._ended = kept, ended

    def shed(self, used: dict[_Key, Doc]) -> None:
        """After a batch: let go of what ended in it, and of the oldest above the limit."""
        for key, doc in used.items():
            if doc["state"] in self._ended:
                del self.documents[key]
            else:
                self.documents.move_to_end(key)
        while len(self.documents) > self._kept:
            self.documents.popitem(last=False)


def _columns(keys: Iterable[tuple[str, Any]]) -> tuple[list[str], list[Any]]:
    pairs = list(keys)
    return [first for first, _ in pairs], [second for _, second in pairs]


def _text(value: object) -> str:
    return _encoder.encode(value).decode()
