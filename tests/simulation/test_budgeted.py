"""A run under a budget, in any order of events and deaths: never beyond it, and nothing is lost."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from support import reference
from support.budgeted import WORST, BudgetedWorld
from support.simulated import RUN
from trialog.proto import events as ev

SHAPE = {
    "n_steps": 2,
    "prompts_per_step": 2,
    "n_samples": 2,
    "n_worlds": 2,
    "retries": {"trial": 1, "judge": 1, "lost": 1000},
    "timeouts": {"step_s": 86_400.0},
    "faults": {"flaky_trial_rate": 0.4, "judge_flake_rate": 0.5},
    "budget": {"judge_calls": 2, "tokens": 250},
}


@pytest.fixture(scope="module")
def worlds() -> list[BudgetedWorld]:
    """Forty runs, each in another order."""
    made = [BudgetedWorld(seed, **SHAPE) for seed in range(40)]
    for world in made:
        world.go()
    return made


def test_what_is_spent_and_out_never_exceeds_the_limit_nor_do_the_calls(
    worlds: list[BudgetedWorld],
) -> None:
    for world in worlds:
        for out, limit, called in world.moments:
            assert called <= out <= limit


def test_every_run_completes_with_the_models_weights(worlds: list[BudgetedWorld]) -> None:
    expected = reference.run(worlds[0].outcomes[RUN].model)
    for world in worlds:
        assert world.facts(ev.RunCompleted), world.facts(ev.RunFailed)
        for applied in world.facts(ev.StepApplied):
            got = json.loads(world.blobs[applied.digest])["doc_prior"]
            assert got == expected.priors[applied.step]


def test_pauses_use_no_retry_and_skip_nothing(worlds: list[BudgetedWorld]) -> None:
    model = reference.run(worlds[0].outcomes[RUN].model)
    for world in worlds:
        retried = Counter(f.subject for f in world.facts(ev.TrialRetryScheduled))
        assert {t for t, n in retried.items() if n} == model.generate_retried | model.judge_retried
        assert world.facts(ev.TrialSkipped) == []


def test_a_recorded_call_is_never_made_again(worlds: list[BudgetedWorld]) -> None:
    for world in worlds:
        started = Counter(fact.call_key for fact in world.facts(ev.JudgeCallStarted))
        recorded = Counter(fact.call_key for fact in world.facts(ev.JudgeCallRecorded))
        assert set(recorded.values()) == {1}
        for key, calls in world.http_calls.items():
            assert recorded[key] <= calls <= started[key], "I4"


def test_in_the_end_what_is_spent_is_what_is_recorded_and_what_was_lost(
    worlds: list[BudgetedWorld],
) -> None:
    for world in worlds:
        recorded = len(world.facts(ev.JudgeCallRecorded))
        lost = world.budget.spent.calls - recorded
        assert lost >= world.http_calls.total() - recorded
        assert world.budget.spent.tokens == 60 * recorded + WORST.tokens * lost


def test_the_storms_were_storms(worlds: list[BudgetedWorld]) -> None:
    seen: Counter[str] = Counter()
    for world in worlds:
        seen += world.verdicts
        reasons = {fact.reason.partition(":")[0] for fact in world.facts(ev.RunPaused)}
        seen.update(reasons)
    wanted = {"call unfunded", "call refused", "call stale", "back ok"}
    assert wanted | {"budget.judge_calls", "budget.tokens"} <= set(seen)
    assert any(n > 1 for world in worlds for n in world.http_calls.values())
