"""Which facts a trial has is known from its document: none is missed, however many failed."""

from __future__ import annotations

from support import exports as x
from support import facts as f
from trialog.driver.export.facts import gathered, slots_of
from trialog.proto import events as ev
from trialog.proto.slots import slot_of


def failed(stage: str, n: int, failure: str = "agent") -> ev.TrialAttemptFailed:
    return ev.TrialAttemptFailed(x.TRIAL, stage, n, failure)


def retried(stage: str, n: int) -> ev.TrialRetryScheduled:
    return ev.TrialRetryScheduled(x.TRIAL, stage, n, 1, 1)


def test_every_fact_of_a_trial_has_one_of_its_slots() -> None:
    requested, *rest = f.judged_trial(x.TRIAL)
    facts: list[ev.Fact] = [requested, failed("generate", 0), failed("generate", 0, "lost")]
    for n in range(40):  # more than a document tells of
        facts += [failed("judge", n, "infrastructure"), retried("judge", n)]
    facts += [failed("judge", n, "lost") for n in range(3)] + rest
    slots = slots_of(x.document_of(x.TRIAL, facts), 10)
    kinds = ev.TrialRequested, ev.TrajectoryRecorded, ev.TrialVerified, ev.Judged
    told = [fact for fact in facts if isinstance(fact, (*kinds, ev.TrialAttemptFailed))]
    assert {slot_of(fact) for fact in told} <= set(slots)
    assert len(slots) == len(set(slots)) < 100


def test_facts_are_told_apart() -> None:
    events = f.recorded(f.RUN, [*f.judged_trial(x.TRIAL), failed("judge", 0)])
    found = gathered(x.TRIAL, events)
    assert found.requested and found.trajectory and found.verified and found.judged
    assert (len(found.failures), found.skipped, found.cancelled) == (1, None, None)
    assert found.ended_at == events[5].recorded_at
    assert gathered(x.TRIAL, events[:2]).ended_at is None
