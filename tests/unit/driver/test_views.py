"""Read models: what each event does to the documents of its run, its step and its trial."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from support import facts as f
from trialog.driver.views import (
    Doc,
    adopted,
    evolve_run,
    evolve_step,
    evolve_trial,
    step_of,
    trial_of,
)
from trialog.proto import events as ev

TRIAL = "s0-p0-n0"
NO_BILL = {"judge_calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "usd": 0.0}
SKIPPED = ev.TrialSkipped("s0-p1-n0", 0, "retries_exhausted", "generate: agent")


def run_of(facts: Sequence[ev.Fact]) -> Doc:
    doc: Doc | None = None
    for event in f.recorded(f.RUN, facts):
        doc = evolve_run(doc, event, event.fact())
    assert doc is not None
    return doc


def steps_of(facts: Sequence[ev.Fact]) -> list[Doc]:
    docs: dict[int, Doc | None] = {}
    for event in f.recorded(f.RUN, facts):
        fact = event.fact()
        number = step_of(fact)
        if number is not None:
            docs[number] = evolve_step(docs.get(number), event, fact)
    return [doc for _, doc in sorted(docs.items()) if doc is not None]


def trial_from(facts: Sequence[ev.Fact], trial_id: str = TRIAL) -> Doc:
    doc: Doc | None = None
    for event in f.recorded(f.RUN, facts):
        fact = event.fact()
        if trial_of(fact) == trial_id:
            doc = evolve_trial(doc, event, fact)
    assert doc is not None
    return doc


def whole_run() -> list[ev.Fact]:
    """Two steps: a flake in generation, one in judging, one skipped trial, one lost worker."""
    flake = ev.TrialAttemptFailed(TRIAL, "generate", 0, "injected", injected=True)
    lost = ev.TrialAttemptFailed(TRIAL, "generate", 0, "lost", worker="sandbox-1")
    requested, *rest = f.judged_trial(TRIAL)
    return [
        f.run_requested(labels={"team": "a"}),
        ev.WorldRequested("w0", "world-key"),
        ev.WorldBuilt("w0", "world-key", "wd"),
        requested,
        f.trial_requested("s0-p1-n0"),
        flake,
        ev.TrialRetryScheduled(TRIAL, "generate", 0, 1, 1),
        lost,
        *rest[:-1],
        ev.TrialAttemptFailed(TRIAL, "judge", 0, "injected", injected=True),
        ev.TrialRetryScheduled(TRIAL, "judge", 0, 1, 1),
        rest[-1],
        ev.TrialAttemptFailed("s0-p1-n0", "generate", 0, "agent", message="broke"),
        SKIPPED,
        f.step_requested(0, n_scored=1, n_skipped=1),
        f.step_applied(0, n_trials=1, n_skipped=1, mean_reward=2.00049, mean_turns=2.345),
        ev.FaultInjected("crash_driver", 0),
        *f.judged_trial("s1-p0-n0", 1),
        *f.judged_trial("s1-p1-n0", 1),
        f.step_requested(1),
        f.step_applied(1),
        ev.RunCompleted(2, "w2"),
    ]


def test_a_whole_run_shows_all_that_happened() -> None:
    doc = run_of(whole_run())
    assert doc["state"] == "completed"
    assert (doc["run_id"], doc["rubric"], doc["parent"]) == (f.RUN, "v1", None)
    assert doc["created_at"] == "2026-11-30T12:00:01.000000+00:00"
    assert doc["position"] == len(whole_run())
    assert doc["counts"] == {
        "executed": {
            "build_world": 1,
            "generate": 3,
            "verify": 3,
            "judge_call": 3,
            "judge": 3,
            "train_step": 2,
        },
        "recovered": dict.fromkeys(
            ("build_world", "generate", "verify", "judge_call", "judge", "train_step"), 0
        ),
        "retried": {"build_world": 0, "generate": 1, "verify": 0, "judge": 1, "train_step": 0},
        "lost": {"build_world": 0, "generate": 1, "verify": 0, "judge": 0, "train_step": 0},
        "skipped": 1,
    }
    assert doc["cost"] == {
        "judge_calls": 3,
        "prompt_tokens": 300,
        "completion_tokens": 60,
        "usd": 0.0009,
        "saved_by_memo": NO_BILL,
        "saved_by_recovery": NO_BILL,
        "calls_started": 3,
        "calls_unrecorded": 0,
    }
    assert (doc["steps_applied"], doc["n_steps"], doc["mean_reward"]) == (2, 2, 2.0)
    assert (doc["current_step"], doc["weights_version"], doc["weights_digest"]) == (1, 2, "w2")
    assert [fault["kind"] for fault in doc["faults"]] == ["crash_driver"]


def test_a_step_shows_its_counts_means_and_recorded_times() -> None:
    first, second = steps_of(whole_run())
    assert first == {
        "step": 0,
        "state": "applied",
        "position": 19,
        "mean_reward": 2.0,
        "mean_turns": 2.35,
        "n_trials": 1,
        "n_skipped": 1,
        "n_cancelled": 0,
        "n_requested": 2,
        "n_recorded": 1,
        "n_judged": 1,
        "weights_version": 1,
        "weights_digest": "w1",
        "actor": "trainer-1",
        "pid": 77,
        "trained": True,
        "provenance": {"state": "executed", "run_id": f.RUN, "position": 19},
        "source": None,
        "requested_at": "2026-11-30T12:00:04.000000+00:00",
        "applied_at": "2026-11-30T12:00:19.000000+00:00",
    }
    assert (second["step"], second["n_trials"], second["n_requested"]) == (1, 2, 2)


@pytest.mark.parametrize(
    ("until", "state"), [(4, "running"), (17, "running"), (18, "training"), (19, "applied")]
)
def test_a_step_goes_from_running_over_training_to_applied(until: int, state: str) -> None:
    assert steps_of(whole_run()[:until])[0]["state"] == state


def test_a_run_begins_with_the_weights_that_it_was_given() -> None:
    request = f.run_requested()
    doc = run_of([request])
    assert (doc["weights_version"], doc["weights_digest"]) == (0, request.initial_weights)
    assert doc["current_step"] is None
    assert run_of([request, f.trial_requested(TRIAL)])["current_step"] == 0


def test_documents_are_their_folds_whole_state() -> None:
    """Loaded from JSON after any event, the fold goes on as if it had never stopped (I6)."""
    facts = whole_run()
    events = f.recorded(f.RUN, facts)
    for cut in range(1, len(facts)):
        doc: Any = json.loads(json.dumps(run_of(facts[:cut])))
        for event in events[cut:]:
            doc = evolve_run(doc, event, event.fact())
        assert doc == run_of(facts)
        step: Any = json.loads(json.dumps((steps_of(facts[:cut]) or [None])[0]))
        for event in events[cut:]:
            fact = event.fact()
            if step_of(fact) == 0:
                step = evolve_step(step, event, fact)
        assert step == steps_of(facts)[0]


def test_no_document_grows_with_the_runs_history() -> None:
    """Written with the 2,000th step are as many bytes as with the 2nd, but for longer numbers."""
    facts: list[ev.Fact] = [f.run_requested(n_steps=2000, prompts_per_step=1)]
    course: list[int] = []
    for step in range(2000):
        facts += [*f.judged_trial(f"s{step}-p0-n0", step), f.step_requested(step)]
        facts.append(f.step_applied(step))
        course.append(len(facts))
    events = [(event, event.fact()) for event in f.recorded(f.RUN, facts)]
    run: Doc | None = None
    written: list[str] = []
    for step, (start, end) in enumerate(zip([0, *course], course, strict=False)):
        shown: Doc | None = None
        for event, fact in events[start:end]:
            run = evolve_run(run, event, fact)
            shown = evolve_step(shown, event, fact) if step_of(fact) == step else shown
        written.append(json.dumps([run, shown]))
    assert _without_digits(written[1999]) == _without_digits(written[1])
    assert len(written[1999]) < len(written[1]) + 100


def _without_digits(text: str) -> str:
    return re.sub(r"\d+", "0", text)


def test_events_seen_before_pass_by() -> None:
    run, trial = run_of(whole_run()), trial_from(whole_run())
    first: Doc | None = steps_of(whole_run())[0]
    for event in f.recorded(f.RUN, whole_run()):
        fact = event.fact()
        run = evolve_run(run, event, fact)
        if step_of(fact) == 0:
            first = evolve_step(first, event, fact)
        if trial_of(fact) == TRIAL:
            trial = evolve_trial(trial, event, fact)
    assert first == steps_of(whole_run())[0]
    assert run == run_of(whole_run())
    assert trial == trial_from(whole_run())


def test_a_trial_counts_attempts_by_stage_and_losses_apart() -> None:
    doc = trial_from(whole_run())
    assert (doc["state"], doc["attempts"]) == ("judged", 3)
    assert doc["attempts_by_stage"] == {"generate": 2, "verify": 1, "judge": 2}
    assert [(x["stage"], x["failure"]) for x in doc["failures"]] == [
        ("generate", "injected"),
        ("generate", "lost"),
        ("judge", "injected"),
    ]
    assert (doc["judge_score"], doc["reward"]) == (1.0, 2.0)
    assert (doc["verified"], doc["found_doc"], doc["n_turns"]) == (True, 3, 2)
    assert doc["trajectory"] == "0" * 64


def test_a_trial_that_exhausted_its_retries_was_tried_as_often_as_it_was() -> None:
    facts = [
        f.run_requested(),
        f.trial_requested(TRIAL),
        ev.TrialAttemptFailed(TRIAL, "generate", 0, "agent", message="x" * 1000),
        ev.TrialRetryScheduled(TRIAL, "generate", 0, 1, 1),
        ev.TrialAttemptFailed(TRIAL, "generate", 1, "agent"),
        ev.TrialSkipped(TRIAL, 0, "retries_exhausted"),
    ]
    doc = trial_from(facts)
    assert (doc["state"], doc["attempts"]) == ("skipped", 2)
    assert (doc["skip_reason"], doc["reward"]) == ("retries_exhausted", None)
    assert len(doc["failures"][0]["message"]) == 300


def test_failures_are_bounded() -> None:
    lost = [ev.TrialAttemptFailed(TRIAL, "judge", n, "lost") for n in range(50)]
    doc = trial_from([f.run_requested(), f.trial_requested(TRIAL), *lost])
    assert [failure["n"] for failure in doc["failures"]] == list(range(30, 50))
    assert doc["attempts"] == 1


@pytest.mark.parametrize("end", [SKIPPED, ev.TrialCancelled("s0-p1-n0", 0)])
def test_what_comes_after_a_trials_end_fills_it_and_leaves_its_state(end: ev.Fact) -> None:
    request = [f.run_requested(), f.trial_requested("s0-p1-n0"), end]
    ended = trial_from(request, "s0-p1-n0")
    doc = trial_from([*request, f.trajectory("s0-p1-n0"), f.verified("s0-p1-n0")], "s0-p1-n0")
    assert doc["state"] == ended["state"] != "requested"
    assert doc["ended_at"] == ended["ended_at"]
    assert (doc["n_turns"], doc["verified"]) == (2, True)


def test_recovered_actions_are_no_executed_ones_and_cost_nothing() -> None:
    origin = ev.Provenance("r-ponmlkjihgfedcba", 12)
    facts = [
        f.run_requested(),
        ev.WorldBuilt("w0", "k", "wd", origin),
        f.trial_requested(TRIAL),
        f.trajectory(TRIAL, provenance=origin),
        f.verified(TRIAL, provenance=origin),
        f.judge_call(TRIAL, provenance=origin),
        f.judged(TRIAL, provenance=origin),
        f.step_applied(provenance=origin),
    ]
    doc = run_of(facts)
    assert set(doc["counts"]["executed"].values()) == {0}
    assert set(doc["counts"]["recovered"].values()) == {1}
    assert doc["cost"]["judge_calls"] == 0
    trial, (step,) = trial_from(facts), steps_of(facts)
    source = {"state": "recovered", "run_id": "r-ponmlkjihgfedcba", "position": 12}
    assert trial["provenance"] == dict.fromkeys(("generate", "verify", "judge"), source)
    assert trial["judge_calls"] == {"executed": 0, "recovered": 1}
    assert step["provenance"] == source


def test_what_is_executed_is_told_from_what_is_recovered_and_from_what_is_not_done_yet() -> None:
    """A trial whose trajectory an ancestor has and whose judgment is this run's own."""
    origin = ev.Provenance("r-ponmlkjihgfedcba", 12)
    facts = [
        f.run_requested(),
        f.trial_requested(TRIAL),
        f.trajectory(TRIAL, provenance=origin),
        f.verified(TRIAL),
        f.judge_call(TRIAL, valid=False, score=None),
        f.judge_call(TRIAL, ordinal=1),
        f.judged(TRIAL),
    ]
    recovered = {"state": "recovered", "run_id": "r-ponmlkjihgfedcba", "position": 12}
    verified = {"state": "executed", "run_id": f.RUN, "position": 4}
    judged = {"state": "executed", "run_id": f.RUN, "position": 7}
    at_first = trial_from(facts[:2])["provenance"]
    assert at_first == {"generate": None, "verify": None, "judge": None}
    half = trial_from(facts[:4])["provenance"]
    assert half == {"generate": recovered, "verify": verified, "judge": None}
    doc = trial_from(facts)
    assert doc["provenance"] == {"generate": recovered, "verify": verified, "judge": judged}
    assert doc["judge_calls"] == {"executed": 2, "recovered": 0}


def test_a_trial_of_a_step_that_was_recovered_whole_is_recovered() -> None:
    """Its document is that of the run which has it, shown as the fork's."""
    doc = trial_from(whole_run())
    assert adopted(doc, f.RUN) is doc
    shown = adopted(doc, "r-ponmlkjihgfedcba")
    assert shown["run_id"] == "r-ponmlkjihgfedcba"
    assert shown["provenance"] == {
        action: source | {"state": "recovered"} for action, source in doc["provenance"].items()
    }
    assert shown["provenance"]["judge"]["run_id"] == f.RUN
    assert (shown["judge_calls"], shown["failures"]) == ({"executed": 0, "recovered": 0}, [])
    half = trial_from([f.run_requested(), f.trial_requested(TRIAL), f.trajectory(TRIAL)])
    assert adopted(half, "r-ponmlkjihgfedcba")["provenance"]["judge"] is None
    assert doc["provenance"]["judge"]["state"] == "executed"


def test_a_run_shows_its_place_in_its_tree() -> None:
    assert (doc := run_of([f.run_requested()]))["root"] == f.RUN
    assert (doc["mode"], doc["from_step"]) == ("recompute", 0)
    request = msgspec.structs.replace(
        f.run_requested(), root="r-ponmlkjihgfedcba", mode="rescore", from_step=0
    )
    forked = run_of([request])
    assert (forked["root"], forked["mode"]) == ("r-ponmlkjihgfedcba", "rescore")


def test_an_invalid_reply_is_paid_for_and_an_untrained_step_is_no_training() -> None:
    call = f.judge_call(TRIAL, valid=False, score=None)
    untrained = f.step_applied(
        trained=False, n_trials=0, n_skipped=2, mean_reward=None, mean_turns=None, actor="", pid=0
    )
    facts = [f.run_requested(), f.trial_requested(TRIAL), call, untrained]
    doc = run_of(facts)
    assert doc["counts"]["executed"]["judge_call"] == 1
    assert doc["cost"]["usd"] == 0.0003
    assert doc["counts"]["executed"]["train_step"] == 0
    (shown,) = steps_of(facts)
    assert (shown["state"], shown["trained"], shown["mean_reward"]) == ("applied", False, None)
    assert (shown["actor"], shown["pid"]) == (None, None)


def test_a_step_counts_what_scores_not_what_was_judged() -> None:
    """Under min_group a judged trial may be left out of its step."""
    facts = [f.run_requested(), *f.judged_trial(TRIAL), f.step_requested(0, n_scored=0)]
    (shown,) = steps_of(facts)
    assert (shown["n_trials"], shown["n_judged"]) == (0, 1)


def test_pauses_are_counted_and_an_end_is_final() -> None:
    pause, resume = ev.RunPaused(0, "budget"), ev.RunResumed(0)
    paused = run_of([f.run_requested(), pause])
    assert (paused["state"], paused["pauses"], paused["pause_reason"]) == ("paused", 1, "budget")
    resumed = run_of([f.run_requested(), pause, resume])
    assert (resumed["state"], resumed["pauses"], resumed["pause_reason"]) == ("running", 1, None)
    cancelled = run_of([f.run_requested(), pause, ev.RunCancelled(), resume, ev.RunPaused(1)])
    assert (cancelled["state"], cancelled["failure"]) == ("cancelled", None)
    failed = run_of([f.run_requested(), ev.RunFailed("no scored trial")])
    assert (failed["state"], failed["failure"]) == ("failed", "no scored trial")


def test_events_of_what_was_never_requested_make_no_document() -> None:
    event, *_ = f.recorded(f.RUN, [f.trajectory(TRIAL)])
    assert evolve_run(None, event, event.fact()) is None
    assert evolve_trial(None, event, event.fact()) is None


def test_events_about_no_step_make_no_document_of_one() -> None:
    event, *_ = f.recorded(f.RUN, [f.verified(TRIAL)])
    assert step_of(event.fact()) is None
    assert evolve_step(None, event, event.fact()) is None


def test_failures_of_worlds_and_steps_are_no_trials() -> None:
    assert trial_of(ev.TrialAttemptFailed("w0", "build_world", 0, "infrastructure")) is None
    assert trial_of(ev.TrialRetryScheduled("step-0", "train_step", 0, 1, 1)) is None
    assert trial_of(ev.TrialAttemptFailed(TRIAL, "judge", 0, "lost")) == TRIAL
