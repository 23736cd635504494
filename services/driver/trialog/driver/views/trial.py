"""The document of one trial."""

from __future__ import annotations

from typing import Final

from trialog.driver.views.documents import Doc, add, first_recorded, timestamp
from trialog.proto import events as ev
from trialog.proto.work import GENERATE, JUDGE, VERIFY
from trialog.spine.log import Recorded

TRIAL_ENDED: Final = frozenset({"judged", "skipped", "cancelled"})
_STAGES: Final = frozenset({GENERATE, VERIFY, JUDGE})
_KEPT_FAILURES = 20
_MESSAGE_CHARS = 300


def trial_of(fact: ev.Fact) -> str | None:
    """Return the trial whose document an event changes, if it changes one."""
    match fact:
        case (
            ev.TrialRequested()
            | ev.TrajectoryRecorded()
            | ev.TrialVerified()
            | ev.JudgeCallRecorded()
            | ev.Judged()
            | ev.TrialSkipped()
            | ev.TrialCancelled()
        ):
            return fact.trial_id
        case ev.TrialAttemptFailed() | ev.TrialRetryScheduled() if fact.stage in _STAGES:
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
            doc["trajectory"], doc["error"] = fact.blob, fact.error or None
            doc["provenance"][GENERATE] = first_recorded(event, fact.provenance)
            _reach(doc, "recorded", VERIFY)
        case ev.TrialVerified():
            doc["verified"], doc["found_doc"] = fact.verified, fact.found_doc
            doc["verifier_reward"], doc["rewards"] = fact.reward, fact.rewards
            doc["mode"], doc["error"] = fact.mode or None, fact.error or doc["error"]
            doc["provenance"][VERIFY] = first_recorded(event, fact.provenance)
            _reach(doc, "verified", JUDGE)
        case ev.JudgeCallRecorded():
            add(doc["judge_calls"], "executed" if fact.provenance is None else "recovered")
        case ev.Judged():
            doc["judge_score"], doc["reward"], doc["scores"] = fact.score, fact.reward, fact.scores
            doc["verified"], doc["found_doc"] = fact.verified, fact.found_doc
            doc["provenance"][JUDGE] = first_recorded(event, fact.provenance)
            _end(doc, event, "judged")
        case ev.TrialSkipped():
            doc["skip_reason"], doc["skip_message"] = fact.reason, fact.message[:_MESSAGE_CHARS]
            doc["error"] = fact.error or doc["error"]
            _end(doc, event, "skipped")
        case ev.TrialCancelled():
            _end(doc, event, "cancelled")
        case ev.TrialAttemptFailed():
            _attempt_failed(doc, fact)
        case ev.TrialRetryScheduled(stage=stage):
            doc["attempts"] += 1
            add(doc["attempts_by_stage"], stage)
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
        "verifier_reward": None,
        "rewards": {},
        "mode": None,
        "error": None,
        "judge_score": None,
        "scores": {},
        "reward": None,
        "judge_calls": {"executed": 0, "recovered": 0},
        "provenance": {GENERATE: None, VERIFY: None, JUDGE: None},
        "trajectory": None,
        "skip_reason": None,
        "skip_message": None,
        "failures": [],
    }


def _attempt_failed(doc: Doc, fact: ev.TrialAttemptFailed) -> None:
    failure = {
        "stage": fact.stage,
        "failure": fact.failure,
        "error": fact.error or None,
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


def adopted(doc: Doc, run_id: str) -> Doc:
    """Return a trial as a run shows it: one of another run, in a step that it recovered whole, has
    no attempts of its own, and what was done for it was recovered."""
    if doc["run_id"] == run_id:
        return doc
    sources = doc["provenance"]
    return doc | {
        "run_id": run_id,
        "attempts": 1,
        "attempts_by_stage": dict.fromkeys(doc["attempts_by_stage"], 1),
        "judge_calls": {"executed": 0, "recovered": 0},
        "provenance": {
            action: None if source is None else source | {"state": "recovered"}
            for action, source in sources.items()
        },
        "failures": [],
    }
