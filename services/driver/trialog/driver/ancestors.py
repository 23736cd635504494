"""Reads from the log what a fork can take over, one step at a time.

A fact's slot says where it would stand in an ancestor, so it is looked up by name: what a step
costs grows with its trials and the ancestors, not with their logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trialog.driver import queries
from trialog.driver.lineage import NOTHING, Lineage, Seen, found_in, generated, standing
from trialog.driver.state import RunState, names_of, worlds_of
from trialog.proto import events as ev
from trialog.proto.ids import event_id
from trialog.spine.postgres.log import PostgresLog

_STAGES = ("trajectory", "verified", "end")


class Ancestors:
    """The lineages of runs, each that of the step in progress."""

    def __init__(self, log: PostgresLog) -> None:
        self._log = log
        self._kept: dict[str, Lineage] = {}

    async def of(self, state: RunState) -> Lineage:
        """Return what a run's ancestors have of its step in progress."""
        if not state.request.lineage or state.step is None or state.end is not None:
            return NOTHING
        kept = self._kept.get(state.run_id)
        if kept is None or kept.step != state.step.number:
            kept = self._kept[state.run_id] = await self.read(state)
        return kept

    def forget(self, run_id: str) -> None:
        """Let go of a run that is over."""
        self._kept.pop(run_id, None)

    async def read(self, state: RunState) -> Lineage:
        """Read the lineage of a run's step in progress from the log."""
        step = state.step
        assert step is not None
        taken: list[ev.Fact] = []
        if step.taken:
            parent = state.request.lineage[0]
            trials = await self._trials(parent, step.number)
            slots = [f"{stage}:{trial}" for trial in trials for stage in ("trial", *_STAGES)]
            slots += [f"step-requested:{step.number}", f"step-applied:{step.number}"]
            seen = await self._seen(parent, slots)
            taken = generated(seen) if state.rescoring else standing(seen)
        else:
            trials = [str(name) for name in names_of(state.spec, step.number)]
        found: list[Seen] = []
        if not step.taken or state.rescoring:
            slots = [f"{stage}:{trial}" for trial in trials for stage in _STAGES]
            slots.append(f"step-applied:{step.number}")
            if not state.worlds:
                slots += [f"world:{world}" for world in worlds_of(state.spec)]
            for ancestor in state.request.lineage:
                found += await self._seen(ancestor, slots)
        elif not state.worlds:
            slots = [f"world:{world}" for world in worlds_of(state.spec)]
            for ancestor in state.request.lineage:
                found += await self._seen(ancestor, slots)
        return Lineage(step.number, found_in(found), taken)

    async def _seen(self, ancestor: ev.Provenance, slots: Sequence[str]) -> list[Seen]:
        """Return the facts in an ancestor's slots, as far as this run sees it."""
        ids = [event_id(ancestor.run_id, slot) for slot in slots]
        async with self._log.database.connection() as connection:
            rows = await connection.fetch(queries.IN_SLOTS, ids, ancestor.position)
        return list(_decoded(rows))

    async def _trials(self, parent: ev.Provenance, step: int) -> list[str]:
        """Return the trials that an ancestor asked for in a step, in log order."""
        async with self._log.database.connection() as connection:
            rows = await connection.fetch(
                queries.TRIALS_OF_STEP,
                parent.run_id,
                event_id(parent.run_id, f"step-applied:{step - 1}"),
                event_id(parent.run_id, f"step-applied:{step}"),
                parent.position,
            )
        facts = (one.fact for one in _decoded(rows))
        return [
            fact.trial_id
            for fact in facts
            if isinstance(fact, ev.TrialRequested) and fact.step == step
        ]


def _decoded(rows: Iterable[Sequence[object]]) -> Iterable[Seen]:
    for run_id, position, kind, version, data in rows:
        assert isinstance(run_id, str) and isinstance(position, int) and isinstance(kind, str)
        assert isinstance(version, int) and isinstance(data, str)
        yield Seen(ev.decode(kind, version, data), run_id, position)
