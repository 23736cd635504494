"""What a fork can take over from its ancestors: facts of one step, by content. Pure.

A fact is found by its subject and its action key, whoever of the ancestors recorded it; a step that
stands as the parent has it is taken whole. What comes out carries its provenance, so recording it
says where it was paid for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from trialog.proto import events as ev
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
    parent's own facts of the step in log order, for a step that stands as it is.
    """

    step: int = -1
    found: dict[tuple[str, str], Paid] = field(default_factory=dict[tuple[str, str], Paid])
    taken: Sequence[ev.Fact] = ()

    def recover(self, kind: type[_Paid], subject: str, key: str) -> _Paid | None:
        """Return the recorded outcome of an action, if there is one, with its provenance."""
        fact = self.found.get((subject, key))
        return fact if isinstance(fact, kind) else None


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
            case ev.StepApplied(trained=True, step=step):
                subject = step_subject(step)
            case _:
                continue  # a skip, a cancellation: no outcome that could stand for another run
        if (subject, fact.action_key) not in found:
            found[subject, fact.action_key] = recovered(fact, one)
    return found


def recovered(fact: _Paid, seen: Seen) -> _Paid:
    """Return a fact as a fork records it: with where it was first recorded."""
    source = fact.provenance or ev.Provenance(seen.run_id, seen.position)
    return replace(fact, provenance=source)


def standing(seen: Sequence[Seen]) -> list[ev.Fact]:
    """Return the facts of a step that stands as it is, skips included, trial by trial: nothing of
    it is to be done. ``seen`` are the step's slots, in any order."""
    taken: list[ev.Fact] = []
    for one in _by_trial(seen):
        match one.fact:
            case ev.TrialRequested() | ev.StepRequested() as fact:
                taken.append(replace(fact, settled=True))
            case ev.TrajectoryRecorded() | ev.TrialVerified() as fact:
                taken.append(replace(recovered(fact, one), settled=True))
            case ev.Judged() | ev.StepApplied() as fact:
                taken.append(recovered(fact, one))
            case ev.TrialSkipped() as fact:
                source = fact.provenance or ev.Provenance(one.run_id, one.position)
                taken.append(replace(fact, provenance=source))
            case _:
                pass
    return taken


def generated(seen: Sequence[Seen]) -> list[ev.Fact]:
    """Return the requests, trajectories and verifications of a step, trial by trial, for judging
    them anew. A trial without a trajectory is no trial of a run that only judges."""
    tried = {one.fact.trial_id for one in seen if isinstance(one.fact, ev.TrajectoryRecorded)}
    verified = {one.fact.trial_id for one in seen if isinstance(one.fact, ev.TrialVerified)}
    taken: list[ev.Fact] = []
    for one in _by_trial(seen):
        match one.fact:
            case ev.TrialRequested(trial_id=trial) as fact if trial in tried:
                taken.append(replace(fact, settled=True))
            case ev.TrajectoryRecorded(trial_id=trial) as fact:
                taken.append(replace(recovered(fact, one), settled=trial in verified))
            case ev.TrialVerified() as fact:
                taken.append(replace(recovered(fact, one), settled=False))
            case _:
                pass
    return taken


def _by_trial(seen: Sequence[Seen]) -> list[Seen]:
    """Return facts with those of a trial together, trials and facts in log order; those of the
    step itself last."""
    first: dict[str, int] = {}
    for one in seen:
        trial = getattr(one.fact, "trial_id", None)
        if trial is not None:
            first[trial] = min(first.get(trial, one.position), one.position)

    def place(one: Seen) -> tuple[float, int]:
        return first.get(getattr(one.fact, "trial_id", ""), math.inf), one.position

    return sorted(seen, key=place)
