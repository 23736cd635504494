"""Reads from the log what a fork can take over, one step at a time.

A fact's slot says where it would stand in an ancestor, so it is looked up by name: what a step
costs grows with its trials and the ancestors, not with their logs. Steps that are recovered whole
cost one look-up each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trialog.driver.lineage import NOTHING, Lineage, Seen, found_in, generated, whole_steps
from trialog.driver.state import RunState, names_of, worlds_of
from trialog.proto import events as ev
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
            requests = await self._requests(state.request.lineage[0], number)
            return await self._rescored(state, requests)
        worlds = [] if state.worlds else [f"world:{world}" for world in worlds_of(state.spec)]
        ahead = range(number, min(number + _STEPS_AHEAD, state.spec.n_steps))
        seen = await self._seen_by_all(
            state, [*worlds, *(f"step-applied:{step}" for step in ahead)]
        )
        whole = whole_steps(seen)
        if _is_whole(state, whole):
            return Lineage(number, whole, found_in(seen))
        trials = [str(name) for name in names_of(state.spec, number)]
        slots = [f"{stage}:{trial}" for trial in trials for stage in _STAGES]
        seen += await self._seen_by_all(state, slots)
        return Lineage(number, whole, found_in(seen))

    async def _rescored(self, state: RunState, requests: Sequence[Seen]) -> Lineage:
        """Return a step of the parent for being judged anew, with judgments that are there."""
        assert state.step is not None
        taken = list[ev.Fact]()
        found = list[Seen]()
        if requests:
            trials = [getattr(one.fact, "trial_id", "") for one in requests]
            source = ev.Provenance(requests[0].run_id, state.request.lineage[0].position)
            slots = [f"{stage}:{trial}" for trial in trials for stage in ("trajectory", "verified")]
            taken = generated([*requests, *await self._seen(source, slots)])
            found = await self._seen_by_all(state, [f"end:{trial}" for trial in trials])
        return Lineage(state.step.number, {}, found_in(found), taken)

    async def _requests(self, parent: ev.Provenance, step: int) -> list[Seen]:
        """Return the requests of a step's trials, in log order. Those of a step that the parent
        recovered whole are in the run that it has them from."""
        source = parent.run_id
        for one in await self._seen(parent, [f"step-applied:{step}"]):
            applied = one.fact
            if isinstance(applied, ev.StepApplied) and applied.whole and applied.provenance:
                source = applied.provenance.run_id
        bounds = f"step-applied:{step - 1}", f"step-applied:{step}"
        rows = await self._log.between(source, "TrialRequested", *bounds, parent.position)
        return [one for one in _seen(rows) if getattr(one.fact, "step", None) == step]

    async def _seen_by_all(self, state: RunState, slots: Sequence[str]) -> list[Seen]:
        """Return the facts in the slots of all ancestors, the parent's first."""
        found: list[Seen] = []
        for ancestor in state.request.lineage if slots else ():
            found += await self._seen(ancestor, slots)
        return found

    async def _seen(self, ancestor: ev.Provenance, slots: Sequence[str]) -> list[Seen]:
        """Return the facts in an ancestor's slots, as far as this run sees it."""
        return _seen(await self._log.at_slots(ancestor.run_id, slots, ancestor.position))


def _is_whole(state: RunState, whole: dict[int, list[ev.StepApplied]]) -> bool:
    """Whether the step in progress is recovered whole: then its trials need no look-up."""
    step = state.step
    if step is None or step.trials or state.rescoring:
        return False
    if step.number < state.request.from_step:
        return True
    key = state.keys.step_inputs(step.number, state.weights_digest, worlds_of(state.spec))
    return Lineage(step.number, whole).whole_step(step.number, key) is not None


def _seen(events: Iterable[Recorded]) -> list[Seen]:
    return [Seen(event.fact(), event.run_id, event.position) for event in events]
