"""Reads from the log what a fork can take over, one step at a time.

A fact's slot says where it would stand in an ancestor, so it is looked up by name: what a step
costs grows with its trials and the ancestors, not with their logs. Steps that are recovered whole
cost one look-up each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trialog.driver import queries
from trialog.driver.lineage import NOTHING, Lineage, Seen, found_in, generated, whole_steps
from trialog.driver.state import RunState, names_of, worlds_of
from trialog.proto import events as ev
from trialog.proto.ids import event_id
from trialog.spine.postgres.log import PostgresLog

_STAGES = ("trajectory", "verified", "end")
_STEPS_AHEAD = 256


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
        """Read the lineage of a run's step in progress from the log.

        Single facts are read only where the step is not recovered whole.
        """
        assert state.step is not None
        number = state.step.number
        worlds = [] if state.worlds else [f"world:{world}" for world in worlds_of(state.spec)]
        ahead = range(number, min(number + _STEPS_AHEAD, state.spec.n_steps))
        seen = await self._seen_by_all(
            state, [*worlds, *(f"step-applied:{step}" for step in ahead)]
        )
        whole = whole_steps(seen)
        if _is_whole(state, whole):
            return Lineage(number, whole, found_in(seen))
        taken: list[ev.Fact] = []
        if state.rescoring:
            taken, trials = await self._taken(state.request.lineage[0], number)
        else:
            trials = [str(name) for name in names_of(state.spec, number)]
        slots = [f"{stage}:{trial}" for trial in trials for stage in _STAGES]
        seen += await self._seen_by_all(state, slots)
        return Lineage(number, whole, found_in(seen), taken)

    async def _taken(self, parent: ev.Provenance, step: int) -> tuple[list[ev.Fact], list[str]]:
        """Return what a step's trials have for being judged anew, and their ids. The trials of a
        step that the parent recovered whole are in the run that it has them from."""
        for one in await self._seen(parent, [f"step-applied:{step}"]):
            applied = one.fact
            if isinstance(applied, ev.StepApplied) and applied.whole and applied.provenance:
                parent = applied.provenance
        trials = await self._trials(parent, step)
        slots = [f"{stage}:{trial}" for trial in trials for stage in ("trial", *_STAGES[:2])]
        return generated(await self._seen(parent, slots)), trials

    async def _seen_by_all(self, state: RunState, slots: Sequence[str]) -> list[Seen]:
        """Return the facts in the slots of all ancestors, the parent's first."""
        found: list[Seen] = []
        for ancestor in state.request.lineage if slots else ():
            found += await self._seen(ancestor, slots)
        return found

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


def _is_whole(state: RunState, whole: dict[int, list[ev.StepApplied]]) -> bool:
    """Whether the step in progress is recovered whole: then its trials need no look-up."""
    step = state.step
    if step is None or step.trials or state.rescoring:
        return False
    if step.number < state.request.from_step:
        return True
    key = state.keys.step_inputs(step.number, state.weights_digest, worlds_of(state.spec))
    return Lineage(step.number, whole).whole_step(step.number, key) is not None


def _decoded(rows: Iterable[Sequence[object]]) -> Iterable[Seen]:
    for run_id, position, kind, version, data in rows:
        assert isinstance(run_id, str) and isinstance(position, int) and isinstance(kind, str)
        assert isinstance(version, int) and isinstance(data, str)
        yield Seen(ev.decode(kind, version, data), run_id, position)
