"""What a fork can take over from its ancestors: facts of one step, by content. Pure.

A step whose inputs are all the same is recovered whole, by one key. Else a fact is found by its
subject and its action key, whoever of the ancestors recorded it. What comes out carries its
provenance, so recording it says where it was paid for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from trialog.driver.state import RunState
from trialog.proto import events as ev
from trialog.proto.runspec import worlds_of
from trialog.proto.work import step_subject

Paid = ev.WorldBuilt | ev.TrajectoryRecorded | ev.TrialVerified | ev.Judged | ev.StepApplied
_Paid = TypeVar("_Paid", bound=Paid)


class Seen(NamedTuple):
    """A fact of an ancestor and where it stands."""

    fact: ev.Fact
    run_id: str
    position: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """What the ancestors of a run have of one of its steps.

    ``found`` is for what is recovered by content, nearest ancestor first; ``taken`` are the
    parent's requests, trajectories and verifications of a step that is only judged anew. ``whole``
    has, for this step and some after it, the ancestors' own results, the parent's first.
    """

    step: int = -1
    whole: dict[int, list[ev.StepApplied]] = field(default_factory=dict[int, list[ev.StepApplied]])
    found: dict[tuple[str, str], Paid] = field(default_factory=dict[tuple[str, str], Paid])
    taken: Sequence[ev.Fact] = ()

    def recover(self, kind: type[_Paid], subject: str, key: str) -> _Paid | None:
        """Return the recorded outcome of an action, if there is one, with its provenance."""
        fact = self.found.get((subject, key))
        return fact if isinstance(fact, kind) else None

    def whole_step(self, step: int, key: str | None) -> ev.StepApplied | None:
        """Return the recorded result of a whole step with these inputs; with any, when the key is
        None: the parent's own."""
        for applied in self.whole.get(step, ()):
            if key is None or applied.inputs_key == key:
                return applied
        return None

    def whole_from(self, state: RunState, step: int, weights: str) -> ev.StepApplied | None:
        """Return what a run records of a whole step that would begin from some weights. One below
        ``from_step`` stands as the parent has it, under this run's own key."""
        key = state.keys.step_inputs(step, weights, worlds_of(state.spec, step))
        if step >= state.request.from_step:
            return self.whole_step(step, key)
        stands = self.whole_step(step, None)
        return stands and replace(stands, inputs_key=key)


NOTHING = Lineage()
"""The lineage of a run that has no ancestors."""


def found_in(seen: Iterable[Seen]) -> dict[tuple[str, str], Paid]:
    """Return facts by subject and action key. Of several the first counts."""
    found: dict[tuple[str, str], Paid] = {}
    for one in seen:
        fact = one.fact
        match fact:
            case ev.WorldBuilt(world_id=subject):
                pass
            case ev.TrajectoryRecorded() | ev.TrialVerified() | ev.Judged():
                subject = fact.trial_id
            case ev.StepApplied(trained=True, whole=False, step=step):
                # One that was recovered whole stands where it was trained as well, further up, and
                # says there who paid for it.
                subject = step_subject(step)
            case _:
                continue  # a skip, a cancellation: no outcome that could stand for another run
        if (subject, fact.action_key) not in found:
            found[subject, fact.action_key] = recovered(fact, one)
    return found


def recovered(fact: _Paid, seen: Seen) -> _Paid:
    """Return a fact as a fork records it: with where it was first recorded."""
    source = ev.source_of(fact.provenance, seen.run_id, seen.position)
    if not isinstance(fact, ev.WorldBuilt | ev.StepApplied) and fact.unpinned:
        fact = replace(fact, unpinned=False)  # its key is what this run expects
    return replace(fact, provenance=source)


def whole_steps(seen: Iterable[Seen]) -> dict[int, list[ev.StepApplied]]:
    """Return results of steps as a fork records them whole: where their trials are is where the
    result says, or where it stands."""
    found: dict[int, list[ev.StepApplied]] = {}
    for fact, run_id, position in seen:
        if isinstance(fact, ev.StepApplied):
            source = ev.source_of(fact.provenance if fact.whole else None, run_id, position)
            found.setdefault(fact.step, []).append(replace(fact, whole=True, provenance=source))
    return found


def generated(seen: Iterable[Seen]) -> list[ev.Fact]:
    """Return the requests, trajectories and verifications of a step, trial by trial, for judging
    them anew. ``seen`` has the requests first. A trial without a trajectory is no trial of a run
    that only judges."""
    trials: dict[str, dict[type[ev.Fact], Seen]] = {}
    for one in seen:
        if isinstance(one.fact, ev.TrialRequested | ev.TrajectoryRecorded | ev.TrialVerified):
            trials.setdefault(one.fact.trial_id, {})[type(one.fact)] = one
    taken: list[ev.Fact] = []
    for has in trials.values():
        for one in has.values() if ev.TrajectoryRecorded in has else ():
            match one.fact:
                case ev.TrialRequested() as fact:
                    taken.append(replace(fact, settled=True))
                case ev.TrajectoryRecorded() as fact:
                    settled = ev.TrialVerified in has
                    taken.append(replace(recovered(fact, one), settled=settled))
                case ev.TrialVerified() as fact:
                    taken.append(replace(recovered(fact, one), settled=False))
                case _:
                    pass
    return taken
