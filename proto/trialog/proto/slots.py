"""Which slot of its run a fact fills (docs/glossary.md, *slot*)."""

from __future__ import annotations

from trialog.proto import events as ev


def slot_of(fact: ev.Fact) -> str:
    """Return the name of the one place in its run that this fact may take.

    Raises TypeError for a struct that is no event.
    """
    match fact:
        case ev.RunRequested():
            return "run"
        case ev.WorldRequested(world_id=world):
            return f"world-requested:{world}"
        case ev.WorldBuilt(world_id=world):
            return f"world:{world}"
        case ev.TrialRequested(trial_id=trial):
            return f"trial:{trial}"
        case ev.TrajectoryRecorded(trial_id=trial):
            return f"trajectory:{trial}"
        case ev.TrialVerified(trial_id=trial):
            return f"verified:{trial}"
        case (
            ev.Judged(trial_id=trial)
            | ev.TrialSkipped(trial_id=trial)
            | ev.TrialCancelled(trial_id=trial)
        ):
            return f"end:{trial}"
        case ev.StepRequested(step=step):
            return f"step-requested:{step}"
        case ev.StepApplied(step=step):
            return f"step-applied:{step}"
        case _:
            return _slot_of_the_rest(fact)


def _slot_of_the_rest(fact: ev.Fact) -> str:
    match fact:
        case ev.JudgeCallStarted(call_key=key, fence=fence):
            return f"call-started:{key}:{fence}"
        case ev.JudgeCallRecorded(call_key=key, ordinal=ordinal):
            return f"call:{key}:{ordinal}"
        case ev.TrialAttemptFailed(failure="lost"):
            return f"lost:{fact.subject}:{fact.stage}:{fact.n}"
        case ev.TrialAttemptFailed():
            return f"failed:{fact.subject}:{fact.stage}:{fact.n}"
        case ev.TrialRetryScheduled():
            return f"retry:{fact.subject}:{fact.stage}:{fact.n}"
        case ev.RunPaused(n=n):
            return f"paused:{n}"
        case ev.RunResumed(n=n):
            return f"resumed:{n}"
        case ev.RunCancelled() | ev.RunFailed() | ev.RunCompleted():
            return "run-end"
        case ev.FaultInjected(kind=kind, step=step):
            return f"fault:{kind}:{step}"
        case ev.DeliveryDeadLettered(key=key, n=n):
            return f"dead:{key}:{n}"
        case _:
            raise TypeError(f"{type(fact).__name__} is no event")
