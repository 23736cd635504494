"""Reads from the log what a fork can take over, one step at a time.

A fact's slot says where it would stand in an ancestor, so it is looked up by name: what a step
costs grows with its trials and the ancestors, not with their logs. Steps that are recovered whole
cost one look-up each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trialog.driver.lineage import NOTHING, Lineage, Seen, found_in, generated, whole_steps
from trialog.driver.state import RunState
from trialog.proto import events as ev
from trialog.proto.runspec import names_of
from trialog.spine.log import EventLog, Recorded

_STAGES = ("trajectory", "verified", "end")
_STEPS_AHEAD = 64


class Ancestors:
    """The lineages of runs, each that of the step in progress."""

    def __init__(self, log: EventLog) -> None:
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
        if state.rescoring:
            return await self._rescored(state, number)
        worlds = [f"world:{world}" for world in state.step.unknown]
        ahead = range(number, min(number + _STEPS_AHEAD, state.spec.n_steps))
        seen = await self._seen_by_all(
            state, [*worlds, *(f"step-applied:{step}" for step in ahead)]
        )
        whole = whole_steps(seen)
        lineage = Lineage(number, whole, found_in(seen))
        if not state.step.trials and lineage.whole_from(state, number, state.weights_digest):
            return lineage
        trials = [str(name) for name in names_of(state.spec, number)]
        slots = [f"{stage}:{trial}" for trial in trials for stage in _STAGES]
        seen += await self._seen_by_all(state, slots)
        return Lineage(number, whole, found_in(seen))

    async def _rescored(self, state: RunState, step: int) -> Lineage:
        """Return a step of the parent for being judged anew, with what is there of that."""
        source = await self._source(state, step)
        bounds = f"step-applied:{step - 1}", f"step-applied:{step}"
        until = source.position
        asked = await self._log.between(source.run_id, "TrialRequested", *bounds, until)
        requests = [one for one in _seen(asked) if getattr(one.fact, "step", None) == step]
        trials = [getattr(one.fact, "trial_id", "") for one in requests]
        slots = [f"{stage}:{trial}" for trial in trials for stage in ("trajectory", "verified")]
        if not slots:
            return Lineage(step)
        taken = generated([*requests, *await self._seen(source, slots)])
        unverified = [
            f"verified:{fact.trial_id}"
            for fact in taken
            if isinstance(fact, ev.TrajectoryRecorded) and not fact.settled
        ]
        ends = [f"end:{trial}" for trial in trials]
        found = await self._seen_by_all(state, [*unverified, *ends])
        return Lineage(step, {}, found_in(found), taken)

    async def _source(self, state: RunState, step: int) -> ev.Provenance:
        """Return the ancestor that has the trials of a parent's step, as far as it is seen: those
        of a step that the parent recovered whole are where it has them from."""
        parent, *further = state.request.lineage
        for one in await self._seen(parent, [f"step-applied:{step}"]):
            applied = one.fact
            if isinstance(applied, ev.StepApplied) and applied.whole and applied.provenance:
                whose = applied.provenance.run_id
                return next(each for each in further if each.run_id == whose)
        return parent

    async def _seen_by_all(self, state: RunState, slots: Sequence[str]) -> list[Seen]:
        """Return the facts in the slots of all ancestors, the parent's first."""
        found: list[Seen] = []
        for ancestor in state.request.lineage if slots else ():
            found += await self._seen(ancestor, slots)
        return found

    async def _seen(self, ancestor: ev.Provenance, slots: Sequence[str]) -> list[Seen]:
        """Return the facts in an ancestor's slots, as far as this run sees it."""
        return _seen(await self._log.at_slots(ancestor.run_id, slots, ancestor.position))


def _seen(events: Iterable[Recorded]) -> list[Seen]:
    return [Seen(event.fact(), event.run_id, event.position) for event in events]
