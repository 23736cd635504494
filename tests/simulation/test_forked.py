"""Runs forked at any moment, in any order of events and deaths, end as the model says and execute
only what their lineage has not (I2 to I6, I9)."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
from support.expected import assert_expected
from support.forked import CHANGES, ForkedWorld
from support.site import RUN, fold_in
from support.sources import assert_sources
from support.trees import executed, inherited, needless
from trialog.driver.state import RunState
from trialog.proto import events as ev
from trialog.proto.work import WorkName, call_work_key, work_of
from trialog.spine.memory.log import MemoryLog

SHAPE: dict[str, Any] = {
    "n_steps": 2,
    "prompts_per_step": 2,
    "n_samples": 2,
    "n_worlds": 2,
    # Workers die so often here that no budget may stand in the way.
    "retries": {"trial": 1, "judge": 1, "lost": 1000},
    "timeouts": {"step_s": 86_400.0},
    "faults": {"flaky_trial_rate": 0.4, "judge_flake_rate": 0.5},
}
STORMS, CALMS = 70, 20


def simulated(seed: int, *, calm: bool) -> ForkedWorld:
    """Return a tree of a run and some forks, all of them ended."""
    shape = copy.deepcopy(SHAPE)
    if seed % 3 == 0:
        shape["faults"]["always_fail"] = ["s0-p1-n0"]
    world = ForkedWorld(seed, forks=6 if seed % 4 == 0 else 3, calm=calm, **shape)
    world.go()
    return world


@pytest.fixture(scope="module")
def storms() -> list[ForkedWorld]:
    return [simulated(seed, calm=False) for seed in range(STORMS)]


@pytest.fixture(scope="module")
def calms() -> list[ForkedWorld]:
    """Worlds in which no worker dies."""
    return [simulated(seed, calm=True) for seed in range(1000, 1000 + CALMS)]


@pytest.fixture(scope="module")
def worlds(storms: list[ForkedWorld], calms: list[ForkedWorld]) -> list[ForkedWorld]:
    return [*storms, *calms]


def runs(worlds: list[ForkedWorld]) -> list[tuple[ForkedWorld, str]]:
    return [(world, run_id) for world in worlds for run_id in world.outcomes]


def test_every_run_comes_to_what_the_model_says_for_its_settings(
    worlds: list[ForkedWorld],
) -> None:
    for world, run_id in runs(worlds):
        if not world.cancelled(run_id):
            assert_expected(world, run_id)


def test_no_run_executes_what_its_lineage_has(worlds: list[ForkedWorld]) -> None:
    for world, run_id in runs(worlds):
        assert needless(world, run_id) == set(), f"I9: {world.forkings}"


def test_an_unchanged_fork_of_an_ended_run_executes_nothing(worlds: list[ForkedWorld]) -> None:
    seen = 0
    for world in worlds:
        for run_id, parent, body, mode in world.forkings:
            request = world.outcomes[run_id].request
            end = world.at(parent, "run-end")
            assert end is not None
            whole = end.position <= request.lineage[0].position and not world.cancelled(parent)
            skips = world.facts(ev.TrialSkipped, run=parent)
            if body or mode == "recompute" or not whole or skips:
                continue
            if request.mode == world.outcomes[parent].request.mode:
                assert executed(world, run_id) == set()
                seen += 1
    assert seen > 3


def test_what_is_recovered_is_what_was_recorded_first(worlds: list[ForkedWorld]) -> None:
    for world, run_id in runs(worlds):
        assert_sources(world, run_id)


def test_a_tree_has_one_valid_result_for_a_call(worlds: list[ForkedWorld]) -> None:
    """I2 for calls, and I4."""
    for world in worlds:
        calls = world.facts(ev.JudgeCallRecorded)
        recorded = Counter(fact.call_key for fact in calls if fact.provenance is None)
        started = Counter(fact.call_key for fact in world.facts(ev.JudgeCallStarted))
        assert set(recorded.values()) <= {1}
        for key, made in world.http_calls.items():
            assert recorded[key] <= made <= started[key], "I4"


def test_where_no_worker_dies_a_tree_makes_each_call_once(calms: list[ForkedWorld]) -> None:
    for world in calms:
        recorded = {fact.call_key for fact in world.facts(ev.JudgeCallRecorded)}
        assert recorded <= set(world.http_calls)
        assert set(world.http_calls.values()) == {1}


def test_what_is_settled_is_offered_to_nobody(worlds: list[ForkedWorld]) -> None:
    for world, run_id in runs(worlds):
        for fact in world.facts(run=run_id):
            if getattr(fact, "settled", False):
                offered = work_of(run_id, type(fact)(**_unsettled(fact)))
                assert isinstance(offered, WorkName)
                assert offered.key not in world.store.work


def _unsettled(fact: Any) -> dict[str, Any]:
    return {name: getattr(fact, name) for name in fact.__struct_fields__} | {"settled": False}


def test_every_trial_has_one_end_and_every_slot_one_fact(worlds: list[ForkedWorld]) -> None:
    for world, run_id in runs(worlds):
        asked = [fact.trial_id for fact in world.facts(ev.TrialRequested, run=run_id)]
        kinds = (ev.Judged, ev.TrialSkipped, ev.TrialCancelled)
        ends = Counter(fact.trial_id for fact in world.facts(*kinds, run=run_id))
        assert sorted(ends) == sorted(asked) and set(ends.values()) <= {1}, "I3"
    for world in worlds:
        ids = [row.recorded.event_id for row in world.store.events[0]]
        assert len(set(ids)) == len(ids)


def test_a_state_folded_anew_is_the_live_state(worlds: list[ForkedWorld]) -> None:
    for world in worlds:
        anew: dict[str, RunState] = {}
        for row in world.store.events[0]:
            fold_in(anew, row.recorded)
        live = world.drivers[-1].states
        for state in [*anew.values(), *live.values()]:
            state.to_close.clear()
        assert anew == live, "I6"


async def test_the_chain_verifies(worlds: list[ForkedWorld]) -> None:
    for world in worlds:
        log = MemoryLog(world.store)
        assert await log.broken_link(0, 0, await log.end(0)) is None


def test_nothing_is_left_to_do(worlds: list[ForkedWorld]) -> None:
    for world in worlds:
        calls = {
            call_work_key(RUN, fact.call_key): fact for fact in world.facts(ev.JudgeCallStarted)
        }
        left = [row.key for row in world.store.work.values() if not row.done and not row.closed]
        lost = [key for key in left if key in calls]
        assert sorted(left) == sorted(lost), "but calls that a cancelled run gave up"


def test_the_storms_were_storms(storms: list[ForkedWorld], calms: list[ForkedWorld]) -> None:
    """Every change was drawn, of runs that had begun and of such that had ended, forks were forked,
    and work was lost, came twice and was waited for: else these tests show nothing."""
    verdicts: Counter[str] = Counter()
    recovered: Counter[str] = Counter()
    for world, run_id in runs([*storms, *calms]):
        for fact in world.facts(run=run_id):
            if getattr(fact, "provenance", None) is not None:
                whole = getattr(fact, "whole", False)
                recovered[type(fact).__name__ + (" whole" if whole else "")] += 1
    for world in storms:
        verdicts += world.verdicts
    assert {"fenced", "lost", "done", "held", "undecided", "different"} <= set(verdicts)
    assert any(n > 1 for world in storms for n in world.http_calls.values())
    kinds = {"WorldBuilt", "TrajectoryRecorded", "TrialVerified", "Judged", "JudgeCallRecorded"}
    assert kinds | {"StepApplied", "StepApplied whole"} <= set(recovered)
    forkings = [one for world in [*storms, *calms] for one in world.forkings]
    assert all(any(one.body == change for one in forkings) for change in CHANGES)
    assert {one.mode for one in forkings} == {None, "rescore", "recompute"}
    generations = Counter(
        len(world.outcomes[run_id].request.lineage) for world, run_id in runs(storms)
    )
    assert generations[2] > 40 and generations[3] > 20 and generations[5] > 3
    assert sum(len(inherited(world, run_id)) > 0 for world, run_id in runs(storms)) > 50
