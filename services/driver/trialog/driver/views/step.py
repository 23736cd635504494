"""The document of one step."""

from __future__ import annotations

from typing import Final

from trialog.driver.views.documents import Doc, first_recorded, rounded, timestamp
from trialog.proto import events as ev
from trialog.spine.log import Recorded

STEP_ENDED: Final = frozenset({"applied"})


def step_of(fact: ev.Fact) -> int | None:
    """Return the step whose document an event changes, if it changes one."""
    match fact:
        case (
            ev.TrialRequested()
            | ev.TrajectoryRecorded()
            | ev.Judged()
            | ev.TrialSkipped()
            | ev.TrialCancelled()
            | ev.StepRequested()
            | ev.StepApplied()
        ):
            return fact.step
        case _:
            return None


def evolve_step(doc: Doc | None, event: Recorded, fact: ev.Fact) -> Doc | None:
    """Fold one event about a step into its document, which the first such event makes."""
    if doc is None:
        number = step_of(fact)
        if number is None:
            return None
        doc = _new_step(number, event)
    elif event.position <= doc["position"]:
        return doc
    doc["position"] = event.position
    match fact:
        case ev.TrialRequested():
            doc["n_requested"] += 1
        case ev.TrajectoryRecorded():
            doc["n_recorded"] += 1
        case ev.Judged():
            doc["n_judged"] += 1
            if doc["state"] == "running":
                doc["n_trials"] += 1
        case ev.TrialSkipped():
            doc["n_skipped"] += 1
        case ev.TrialCancelled():
            doc["n_cancelled"] += 1
        case ev.StepRequested(n_scored=n_scored):
            doc["state"], doc["n_trials"] = "training", n_scored
        case ev.StepApplied():
            _applied(doc, event, fact)
        case _:
            pass
    return doc


def _new_step(number: int, event: Recorded) -> Doc:
    return {
        "step": number,
        "state": "running",
        "position": event.position,
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
        "provenance": None,
        "source": None,
        "requested_at": timestamp(event.recorded_at),
        "applied_at": None,
    }


def _applied(doc: Doc, event: Recorded, fact: ev.StepApplied) -> None:
    """Means are shown as the README of the golden numbers says: reward to 3 decimals, turns to 2;
    a step with nothing to train on has none."""
    doc["state"] = "applied"
    doc["mean_reward"] = rounded(fact.mean_reward, 3)
    doc["mean_turns"] = rounded(fact.mean_turns, 2)
    doc["n_trials"] = fact.n_trials
    doc["weights_version"] = fact.version
    doc["weights_digest"] = fact.digest
    doc["actor"] = fact.actor or None
    doc["pid"] = fact.pid or None
    doc["trained"] = fact.trained
    doc["provenance"] = first_recorded(event, fact.provenance)
    if fact.whole and fact.provenance is not None:
        doc["source"] = fact.provenance.run_id
        doc["n_skipped"] = fact.n_skipped
        n_trials = fact.n_trials + fact.n_skipped
        doc["n_requested"] = doc["n_recorded"] = n_trials
        doc["n_judged"] = fact.n_trials
    doc["applied_at"] = timestamp(event.recorded_at)
