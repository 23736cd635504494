"""A run in any order of events and deaths ends as the model says (I1 to I6, I8, I13)."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from support import reference
from support.simulated import RUN, World
from support.site import fold_in
from trialog.driver.state import RunState
from trialog.proto import events as ev
from trialog.spine.memory.log import MemoryLog

SHAPE = {
    "n_steps": 2,
    "prompts_per_step": 2,
    "n_samples": 2,
    "n_worlds": 2,
    # Workers die so often here that no budget may stand in the way.
    "retries": {"trial": 1, "judge": 1, "lost": 1000},
    "timeouts": {"step_s": 86_400.0},
    "faults": {"flaky_trial_rate": 0.4, "judge_flake_rate": 0.5},
}


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    """Sixty runs, each in another order."""
    made = [World(seed, **SHAPE) for seed in range(60)]
    for world in made:
        world.go()
    return made


def test_every_run_completes_with_the_models_weights(worlds: list[World]) -> None:
    expected = reference.run(worlds[0].outcomes[RUN].model)
    for world in worlds:
        assert world.facts(ev.RunCompleted), world.facts(ev.RunFailed)
        for applied in world.facts(ev.StepApplied):
            got = json.loads(world.blobs[applied.digest])["doc_prior"]
            assert got == expected.priors[applied.step]


def test_every_trial_has_one_end_and_every_slot_one_fact(worlds: list[World]) -> None:
    for world in worlds:
        requested = [fact.trial_id for fact in world.facts(ev.TrialRequested)]
        ends = Counter(fact.trial_id for fact in world.facts(ev.Judged, ev.TrialSkipped))
        assert sorted(ends) == sorted(requested) and set(ends.values()) == {1}
        ids = [row.recorded.event_id for row in world.store.events[0]]
        assert len(set(ids)) == len(ids)


def test_positions_are_contiguous_and_the_chain_holds(worlds: list[World]) -> None:
    for world in worlds:
        positions = [row.recorded.position for row in world.store.events[0]]
        assert positions == list(range(1, len(positions) + 1))


async def test_the_chain_verifies(worlds: list[World]) -> None:
    for world in worlds:
        log = MemoryLog(world.store)
        assert await log.broken_link(0, 0, await log.end(0)) is None


def test_a_recorded_call_is_never_made_again(worlds: list[World]) -> None:
    for world in worlds:
        started = Counter(fact.call_key for fact in world.facts(ev.JudgeCallStarted))
        recorded = Counter(fact.call_key for fact in world.facts(ev.JudgeCallRecorded))
        assert set(recorded.values()) == {1}
        for key, calls in world.http_calls.items():
            assert recorded[key] <= calls <= started[key], "I4"


def test_retries_are_the_models_whatever_died(worlds: list[World]) -> None:
    model = reference.run(worlds[0].outcomes[RUN].model)
    for world in worlds:
        retried = Counter(f.subject for f in world.facts(ev.TrialRetryScheduled))
        assert {t for t, n in retried.items() if n} == model.generate_retried | model.judge_retried


def test_a_state_folded_anew_is_the_live_state(worlds: list[World]) -> None:
    for world in worlds:
        states: dict[str, RunState] = {}
        for row in world.store.events[0]:
            fold_in(states, row.recorded)
        anew, live = states[RUN], world.drivers[-1].states[RUN]
        anew.to_close.clear()
        live.to_close.clear()
        assert anew == live, "I6"


def test_the_storms_were_storms(worlds: list[World]) -> None:
    """Fences were met, claims were lost, work came twice: else these tests show nothing."""
    seen: Counter[str] = Counter()
    for world in worlds:
        seen += world.verdicts
    assert {"fenced", "lost", "done", "held", "undecided"} <= set(seen)
    lost = [
        f for world in worlds for f in world.facts(ev.TrialAttemptFailed) if f.failure == "lost"
    ]
    assert len(lost) > 50
    assert any(n > 1 for world in worlds for n in world.http_calls.values())
    assert all(world.store.runs[RUN].state == "ended" for world in worlds)
