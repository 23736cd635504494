"""Read models: the pure fold of events into the documents that the API shows.

A document is plain JSON and the whole state of its fold: it is loaded from its table and folded on.
It holds the position of its last event, and events up to there pass by, so folding a batch twice
is folding it once. Constant work an event. A document given to a fold is used up by it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from trialog.proto import events as ev
from trialog.proto.work import BUILD_WORLD, GENERATE, JUDGE, TRAIN_STEP, VERIFY
from trialog.spine.log import Recorded

Doc = dict[str, Any]

STAGES: Final = (BUILD_WORLD, GENERATE, VERIFY, JUDGE, TRAIN_STEP)
ACTIONS: Final = (BUILD_WORLD, GENERATE, VERIFY, "judge_call", JUDGE, TRAIN_STEP)
RUN_ENDED: Final = frozenset({"completed", "failed", "cancelled"})
TRIAL_ENDED: Final = frozenset({"judged", "skipped", "cancelled"})
_TRIAL_STAGES: Final = frozenset({GENERATE, VERIFY, JUDGE})
_KEPT_FAULTS = 100
_KEPT_FAILURES = 20
_MESSAGE_CHARS = 300


def evolve_run(doc: Doc | None, event: Recorded, fact: ev.Fact) -> Doc | None:
    """Fold one event of a run into its document; None until the run was asked for."""
    if doc is None:
        return _new_run(event, fact) if isinstance(fact, ev.RunRequested) else None
    if event.position <= doc["position"]:
        return doc
    doc["position"] = event.position
    match fact:
        case ev.TrialRequested(step=step):
            _step(doc, step, event)["n_requested"] += 1
        case ev.TrajectoryRecorded(step=step):
            _count(doc, GENERATE, fact.provenance)
            _step(doc, step, event)["n_recorded"] += 1
        case ev.TrialVerified():
            _count(doc, VERIFY, fact.provenance)
        case ev.JudgeCallRecorded():
            _judge_called(doc, fact)
        case ev.Judged(step=step):
            _count(doc, JUDGE, fact.provenance)
            shown = _step(doc, step, event)
            shown["n_judged"] += 1
            if shown["state"] == "running":
                shown["n_trials"] += 1
        case ev.TrialSkipped(step=step):
            doc["counts"]["skipped"] += 1
            _step(doc, step, event)["n_skipped"] += 1
        case ev.TrialCancelled(step=step):
            _step(doc, step, event)["n_cancelled"] += 1
        case ev.TrialAttemptFailed(failure="lost", stage=stage):
            _add(doc["counts"]["lost"], stage)
        case ev.TrialRetryScheduled(stage=stage):
            _add(doc["counts"]["retried"], stage)
        case _:
            _evolve_run_rarely(doc, event, fact)
    return doc


def _evolve_run_rarely(doc: Doc, event: Recorded, fact: ev.Fact) -> None:
    match fact:
        case ev.WorldBuilt():
            _count(doc, BUILD_WORLD, fact.provenance)
        case ev.StepRequested(step=step):
            shown = _step(doc, step, event)
            shown["state"] = "training"
            shown["n_trials"] = fact.n_scored
        case ev.StepApplied():
            _step_applied(doc, event, fact)
        case ev.FaultInjected(kind=kind, step=step):
            at = {"kind": kind, "step": step, "recorded_at": timestamp(event.recorded_at)}
            doc["faults"] = [*doc["faults"], at][-_KEPT_FAULTS:]
        case ev.RunPaused() | ev.RunResumed() if doc["state"] not in RUN_ENDED:
            _paused_or_resumed(doc, fact)
        case ev.RunCompleted():
            _run_ended(doc, event, "completed")
        case ev.RunFailed(reason=reason):
            _run_ended(doc, event, "failed", reason)
        case ev.RunCancelled():
            _run_ended(doc, event, "cancelled")
        case _:
            pass  # shown among the run's events, nowhere else


def _new_run(event: Recorded, fact: ev.RunRequested) -> Doc:
    spec = fact.spec
    return {
        "run_id": event.run_id,
        "state": "running",
        "parent": fact.parent,
        "rubric": spec["rubric"]["name"],
        "created_at": timestamp(event.recorded_at),
        "ended_at": None,
        "labels": spec["labels"],
        "spec": spec,
        "position": event.position,
        "failure": None,
        "n_steps": spec["n_steps"],
        "steps_applied": 0,
        "mean_reward": None,
        "steps": [],
        "counts": {
            "executed": dict.fromkeys(ACTIONS, 0),
            "recovered": dict.fromkeys(ACTIONS, 0),
            "retried": dict.fromkeys(STAGES, 0),
            "lost": dict.fromkeys(STAGES, 0),
            "skipped": 0,
        },
        "cost": {"judge_calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "usd": 0.0},
        "faults": [],
        "pauses": 0,
        "pause_reason": None,
    }


def _step(doc: Doc, number: int, event: Recorded) -> Doc:
    """Return a step of the run, made by the first event about it."""
    steps: list[Doc] = doc["steps"]
    while len(steps) <= number:
        steps.append(
            {
                "step": len(steps),
                "state": "running",
                "mean_reward": None,
                "mean_turns": None,
                "n_trials": 0,
                "n_skipped": 0,
                "n_cancelled": 0,
                "n_requested": 0,
                "n_recorded": 0,
                "n_judged": 0,
                "weights_version": None,
                "weights_digest": None,
                "actor": None,
                "pid": None,
                "trained": None,
                "requested_at": timestamp(event.recorded_at),
                "applied_at": None,
            }
        )
    return steps[number]


def _step_applied(doc: Doc, event: Recorded, fact: ev.StepApplied) -> None:
    """Means are shown as the README of the golden numbers says: reward to 3 decimals, turns to 2;
    a step with nothing to train on has none."""
    if fact.trained:
        _count(doc, TRAIN_STEP, fact.provenance)
    shown = _step(doc, fact.step, event)
    shown["state"] = "applied"
    shown["mean_reward"] = _rounded(fact.mean_reward, 3)
    shown["mean_turns"] = _rounded(fact.mean_turns, 2)
    shown["n_trials"] = fact.n_trials
    shown["weights_version"] = fact.version
    shown["weights_digest"] = fact.digest
    shown["actor"] = fact.actor or None
    shown["pid"] = fact.pid or None
    shown["trained"] = fact.trained
    shown["applied_at"] = timestamp(event.recorded_at)
    doc["steps_applied"] += 1
    doc["mean_reward"] = shown["mean_reward"]


def _judge_called(doc: Doc, fact: ev.JudgeCallRecorded) -> None:
    """A call that was made is paid for, valid or not; a recovered one was paid for elsewhere."""
    _count(doc, "judge_call", fact.provenance)
    if fact.provenance is not None:
        return
    cost = doc["cost"]
    cost["judge_calls"] += 1
    cost["prompt_tokens"] += fact.prompt_tokens
    cost["completion_tokens"] += fact.completion_tokens
    # Whole millionths are added: sums of floats would depend on their order.
    cost["usd"] = (round(cost["usd"] * 1_000_000) + fact.cost_microusd) / 1_000_000


def _paused_or_resumed(doc: Doc, fact: ev.RunPaused | ev.RunResumed) -> None:
    match fact:
        case ev.RunPaused(n=n, reason=reason):
            doc["state"], doc["pauses"], doc["pause_reason"] = "paused", n + 1, reason or None
        case ev.RunResumed():
            doc["state"], doc["pause_reason"] = "running", None


def _run_ended(doc: Doc, event: Recorded, state: str, failure: str | None = None) -> None:
    doc["state"], doc["failure"], doc["pause_reason"] = state, failure, None
    doc["ended_at"] = timestamp(event.recorded_at)


def _count(doc: Doc, action: str, provenance: ev.Provenance | None) -> None:
    doc["counts"]["executed" if provenance is None else "recovered"][action] += 1


def _add(counts: dict[str, int], stage: str) -> None:
    counts[stage] = counts.get(stage, 0) + 1


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def timestamp(at: datetime) -> str:
    """Return a recorded time as ISO 8601 in UTC, always with microseconds."""
    return at.isoformat(timespec="microseconds")


def trial_of(fact: ev.Fact) -> str | None:
    """Return the trial whose document an event changes, if it changes one."""
    match fact:
        case (
            ev.TrialRequested()
            | ev.TrajectoryRecorded()
            | ev.TrialVerified()
            | ev.Judged()
            | ev.TrialSkipped()
            | ev.TrialCancelled()
        ):
            return fact.trial_id
        case ev.TrialAttemptFailed() | ev.TrialRetryScheduled() if fact.stage in _TRIAL_STAGES:
            return fact.subject
        case _:
            return None


def evolve_trial(doc: Doc | None, event: Recorded, fact: ev.Fact) -> Doc | None:
    """Fold one event about a trial into its document; None until the trial was requested.

    What is recorded after a trial's end (work that was paid for) fills its fields and leaves its
    state as it is.
    """
    if doc is None:
        return _new_trial(event, fact) if isinstance(fact, ev.TrialRequested) else None
    if event.position <= doc["position"]:
        return doc
    doc["position"] = event.position
    match fact:
        case ev.TrajectoryRecorded():
            doc["attempt"], doc["n_turns"] = fact.attempt, fact.n_turns
            doc["trajectory"] = fact.blob
            doc["provenance"] = _provenance(fact.provenance)
            _reach(doc, "recorded", VERIFY)
        case ev.TrialVerified():
            doc["verified"], doc["found_doc"] = fact.verified, fact.found_doc
            _reach(doc, "verified", JUDGE)
        case ev.Judged():
            doc["judge_score"], doc["reward"], doc["scores"] = fact.score, fact.reward, fact.scores
            doc["verified"], doc["found_doc"] = fact.verified, fact.found_doc
            _end(doc, event, "judged")
        case ev.TrialSkipped():
            doc["skip_reason"], doc["skip_message"] = fact.reason, fact.message[:_MESSAGE_CHARS]
            _end(doc, event, "skipped")
        case ev.TrialCancelled():
            _end(doc, event, "cancelled")
        case ev.TrialAttemptFailed():
            _attempt_failed(doc, fact)
        case ev.TrialRetryScheduled(stage=stage):
            doc["attempts"] += 1
            _add(doc["attempts_by_stage"], stage)
        case _:
            pass
    return doc


def _new_trial(event: Recorded, fact: ev.TrialRequested) -> Doc:
    return {
        "run_id": event.run_id,
        "trial_id": fact.trial_id,
        "step": fact.step,
        "world_id": fact.world_id,
        "state": "requested",
        "position": event.position,
        "weights_version": fact.weights_version,
        "requested_at": timestamp(event.recorded_at),
        "ended_at": None,
        "attempts": 1,
        "attempts_by_stage": {GENERATE: 1},
        "attempt": None,
        "n_turns": None,
        "found_doc": None,
        "verified": None,
        "judge_score": None,
        "scores": {},
        "reward": None,
        "provenance": None,
        "trajectory": None,
        "skip_reason": None,
        "skip_message": None,
        "failures": [],
    }


def _attempt_failed(doc: Doc, fact: ev.TrialAttemptFailed) -> None:
    failure = {
        "stage": fact.stage,
        "failure": fact.failure,
        "message": fact.message[:_MESSAGE_CHARS],
        "n": fact.n,
    }
    doc["failures"] = [*doc["failures"], failure][-_KEPT_FAILURES:]


def _reach(doc: Doc, state: str, next_stage: str) -> None:
    doc["attempts_by_stage"].setdefault(next_stage, 1)
    if doc["state"] not in TRIAL_ENDED:
        doc["state"] = state


def _end(doc: Doc, event: Recorded, state: str) -> None:
    if doc["state"] not in TRIAL_ENDED:
        doc["state"], doc["ended_at"] = state, timestamp(event.recorded_at)


def _provenance(provenance: ev.Provenance | None) -> Doc | None:
    if provenance is None:
        return None
    return {"run_id": provenance.run_id, "position": provenance.position}
