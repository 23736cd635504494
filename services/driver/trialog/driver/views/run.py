"""The document of one run: its state and its totals, in constant size.

What it was asked to do stays on the log, in RunRequested; its steps have documents of their own.
"""

from __future__ import annotations

from typing import Final

from trialog.driver.views import cost
from trialog.driver.views.documents import Doc, add, rounded, timestamp
from trialog.proto import events as ev
from trialog.proto.work import BUILD_WORLD, GENERATE, JUDGE, TRAIN_STEP, VERIFY
from trialog.spine.log import Recorded

STAGES: Final = (BUILD_WORLD, GENERATE, VERIFY, JUDGE, TRAIN_STEP)
ACTIONS: Final = (BUILD_WORLD, GENERATE, VERIFY, "judge_call", JUDGE, TRAIN_STEP)
RUN_ENDED: Final = frozenset({"completed", "failed", "cancelled"})
_KEPT_FAULTS = 20


def evolve_run(doc: Doc | None, event: Recorded, fact: ev.Fact) -> Doc | None:
    """Fold one event of a run into its document; None until the run was asked for."""
    if doc is None:
        return _new_run(event, fact) if isinstance(fact, ev.RunRequested) else None
    if event.position <= doc["position"]:
        return doc
    doc["position"] = event.position
    match fact:
        case ev.TrialRequested(step=step):
            doc["current_step"] = step
        case ev.TrajectoryRecorded():
            _count(doc, GENERATE, fact.provenance)
        case ev.TrialVerified():
            _count(doc, VERIFY, fact.provenance)
        case ev.JudgeCallStarted():
            cost.call_started(doc["cost"])
        case ev.JudgeCallRecorded():
            _count(doc, "judge_call", fact.provenance)
            cost.call_recorded(doc["cost"], fact)
        case ev.Judged():
            _count(doc, JUDGE, fact.provenance)
            if fact.provenance is not None:
                doc["counts"]["recovered"]["judge_call"] += fact.bill.calls
            cost.judged(doc["cost"], fact)
        case ev.TrialSkipped():
            doc["counts"]["skipped"] += 1
        case ev.TrialAttemptFailed(failure="lost", stage=stage):
            add(doc["counts"]["lost"], stage)
        case ev.TrialRetryScheduled(stage=stage):
            add(doc["counts"]["retried"], stage)
        case _:
            _evolve_rarely(doc, event, fact)
    return doc


def _evolve_rarely(doc: Doc, event: Recorded, fact: ev.Fact) -> None:
    match fact:
        case ev.WorldBuilt():
            _count(doc, BUILD_WORLD, fact.provenance)
        case ev.StepApplied():
            _step_applied(doc, fact)
        case ev.FaultInjected(kind=kind, step=step):
            at = {"kind": kind, "step": step, "recorded_at": timestamp(event.recorded_at)}
            doc["faults"] = [*doc["faults"], at][-_KEPT_FAULTS:]
        case ev.RunPaused() | ev.RunResumed() if doc["state"] not in RUN_ENDED:
            _paused_or_resumed(doc, fact)
        case ev.RunCompleted():
            _ended(doc, event, "completed")
        case ev.RunFailed(reason=reason):
            _ended(doc, event, "failed", reason)
        case ev.RunCancelled():
            _ended(doc, event, "cancelled")
        case _:
            pass  # shown among the run's events or its steps


def _new_run(event: Recorded, fact: ev.RunRequested) -> Doc:
    spec = fact.spec
    return {
        "run_id": event.run_id,
        "state": "running",
        "parent": fact.parent,
        "root": fact.root,
        "mode": fact.mode,
        "from_step": fact.from_step,
        "rubric": spec["rubric"]["name"],
        "created_at": timestamp(event.recorded_at),
        "ended_at": None,
        "position": event.position,
        "failure": None,
        "n_steps": spec["n_steps"],
        "current_step": None,
        "steps_applied": 0,
        "mean_reward": None,
        "weights_version": 0,
        "weights_digest": fact.initial_weights,
        "counts": {
            "executed": dict.fromkeys(ACTIONS, 0),
            "recovered": dict.fromkeys(ACTIONS, 0),
            "retried": dict.fromkeys(STAGES, 0),
            "lost": dict.fromkeys(STAGES, 0),
            "skipped": 0,
        },
        "cost": cost.new_cost(),
        "budget": {"limits": spec["budget"]},
        "faults": [],
        "pauses": 0,
        "pause_reason": None,
    }


def _step_applied(doc: Doc, fact: ev.StepApplied) -> None:
    if fact.trained:
        _count(doc, TRAIN_STEP, fact.provenance)
    if fact.whole:
        recovered = doc["counts"]["recovered"]
        for action in (GENERATE, VERIFY, JUDGE):
            recovered[action] += fact.n_trials
        recovered["judge_call"] += fact.bill.calls
        doc["counts"]["skipped"] += fact.n_skipped
        cost.step_recovered(doc["cost"], fact)
    doc["current_step"] = fact.step
    doc["steps_applied"] += 1
    doc["mean_reward"] = rounded(fact.mean_reward, 3)
    doc["weights_version"], doc["weights_digest"] = fact.version, fact.digest


def _paused_or_resumed(doc: Doc, fact: ev.RunPaused | ev.RunResumed) -> None:
    match fact:
        case ev.RunPaused(n=n, reason=reason):
            doc["state"], doc["pauses"], doc["pause_reason"] = "paused", n + 1, reason or None
        case ev.RunResumed(budget=limits):
            doc["state"], doc["pause_reason"] = "running", None
            if limits is not None:
                doc["budget"] = {"limits": limits}


def _ended(doc: Doc, event: Recorded, state: str, failure: str | None = None) -> None:
    doc["state"], doc["failure"], doc["pause_reason"] = state, failure, None
    doc["ended_at"] = timestamp(event.recorded_at)


def _count(doc: Doc, action: str, provenance: ev.Provenance | None) -> None:
    doc["counts"]["executed" if provenance is None else "recovered"][action] += 1
