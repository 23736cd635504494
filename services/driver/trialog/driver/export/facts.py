"""What the log says of one trial, gathered from its events. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from trialog.driver.views import Doc
from trialog.proto import events as ev
from trialog.proto.work import GENERATE
from trialog.spine.log import Recorded

_Fact = TypeVar("_Fact", bound=ev.Fact)


class At(NamedTuple, Generic[_Fact]):
    """A fact and when it was recorded."""

    fact: _Fact
    at: datetime


@dataclass(slots=True)
class TrialFacts:
    """The facts of a trial; ``failures`` are its attempts that failed, in their order."""

    trial_id: str
    requested: At[ev.TrialRequested] | None = None
    trajectory: At[ev.TrajectoryRecorded] | None = None
    verified: At[ev.TrialVerified] | None = None
    judged: At[ev.Judged] | None = None
    skipped: At[ev.TrialSkipped] | None = None
    cancelled: At[ev.TrialCancelled] | None = None
    failures: list[At[ev.TrialAttemptFailed]] = field(
        default_factory=list[At[ev.TrialAttemptFailed]]
    )

    @property
    def ended_at(self) -> datetime | None:
        """When the trial ended, None while it is open."""
        for end in (self.judged, self.skipped, self.cancelled):
            if end is not None:
                return end.at
        return None

    @property
    def traces(self) -> set[str]:
        """The records that are tracebacks of an agent's own code: those of its tries. A verifier
        leaves the others."""
        failed = [one.fact for one in self.failures]
        return {fact.record for fact in failed if fact.stage == GENERATE and fact.record}

    @property
    def verifier_record(self) -> str:
        """The blob of what the verifier left: of a trial that is not graded, its last attempt."""
        if self.verified is not None and self.verified.fact.record:
            return self.verified.fact.record
        skipped = self.skipped.fact.record if self.skipped else ""
        return "" if skipped in self.traces else skipped

    def add(self, fact: ev.Fact, at: datetime) -> None:
        """Take note of one more fact."""
        match fact:
            case ev.TrialRequested():
                self.requested = At(fact, at)
            case ev.TrajectoryRecorded():
                self.trajectory = At(fact, at)
            case ev.TrialVerified():
                self.verified = At(fact, at)
            case ev.Judged():
                self.judged = At(fact, at)
            case ev.TrialSkipped():
                self.skipped = At(fact, at)
            case ev.TrialCancelled():
                self.cancelled = At(fact, at)
            case ev.TrialAttemptFailed():
                self.failures.append(At(fact, at))
            case _:
                pass  # a call, a retry: told by what came of them


def slots_of(doc: Doc, most_lost: int) -> list[str]:
    """Return the slots of a trial's facts, from its document and how many workers it may lose. A
    look at all events of the run would take longer the longer the run is."""
    trial_id = doc["trial_id"]
    slots = [f"{kind}:{trial_id}" for kind in ("trial", "trajectory", "verified", "end")]
    for stage, n in doc["attempts_by_stage"].items():
        slots += [f"failed:{trial_id}:{stage}:{number}" for number in range(n)]
        slots += [f"lost:{trial_id}:{stage}:{number}" for number in range(most_lost + 1)]
    return slots


def gathered(trial_id: str, events: Iterable[Recorded]) -> TrialFacts:
    """Return the facts of a trial from the events that name it."""
    facts = TrialFacts(trial_id)
    for event in events:
        facts.add(event.fact(), event.recorded_at)
    return facts
