"""What follows in a fork before any work of it is done, and what it executes: change by change."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.ended import SHAPE, ended_well
from support.outcomes import one_by_one
from support.site import now
from support.trees import Tree, counted, executed
from trialog.driver.ancestors import Ancestors
from trialog.driver.decide import chunks, decide
from trialog.driver.forking import ForkRefusedError
from trialog.driver.relay import _is_offered
from trialog.proto import events as ev
from trialog.proto.work import work_of
from trialog.spine.log import Append, new_event

FIRST = [f"s0-p{prompt}-n{sample}" for prompt in range(2) for sample in range(2)]
FAILS = SHAPE | {"faults": {"always_fail": ["s0-p1-n0"]}}


def names(facts: list[ev.Fact]) -> Counter[str]:
    return Counter(type(fact).__name__ for fact in facts)


def offered(tree: Tree, run_id: str) -> Counter[str]:
    """Return the kinds of work that a run has offered."""
    found = (work_of(run_id, fact) for fact in tree.facts(run=run_id))
    offers = [work for work in found if work is not None]
    assert {work.key for work in offers} == {
        row.key for row in tree.store.work.values() if row.run_id == run_id
    }
    return Counter(work.stage for work in offers)


def test_an_unchanged_fork_is_its_worlds_and_whole_steps(tree: Tree, parent: str) -> None:
    fork = tree.fork(parent)
    worlds, steps = ["WorldRequested", "WorldBuilt"] * 2, ["StepApplied"] * 2
    decided = tree.decided(fork)
    assert [type(fact).__name__ for fact in decided] == [*worlds, *steps, "RunCompleted"]
    assert offered(tree, fork) == {}
    steps = tree.facts(ev.StepApplied, run=fork)
    assert [fact.provenance.run_id for fact in steps] == [parent] * 2
    assert ended_well(tree, fork) == {}
    counts = tree.document(fork)["counts"]
    assert counts["executed"] == dict.fromkeys(counts["executed"], 0)
    assert counts["recovered"] == tree.document(parent)["counts"]["executed"]


def test_all_of_it_is_one_decision(tree: Tree, parent: str) -> None:
    fork = tree.fork(parent)
    tree.driver.follow()
    state = tree.driver.states[fork]
    decision = decide(state, 0.0, lambda: 0.0, now(Ancestors(tree.log).of(state)))
    assert names(decision.facts)["StepApplied"] == 2


def test_a_changed_rubric_costs_judgments_and_what_follows_from_them(
    tree: Tree, parent: str
) -> None:
    fork = tree.fork(parent, rubric="v2-efficiency")
    decided = tree.decided(fork)
    trials = ["TrialRequested", "TrajectoryRecorded", "TrialVerified"]
    assert names(decided) == dict.fromkeys(trials, 4) | {"WorldRequested": 2, "WorldBuilt": 2}
    assert offered(tree, fork) == {"judge": 4}
    assert all(not f.settled for f in decided if isinstance(f, ev.TrialVerified))
    done = ended_well(tree, fork)
    # The second step's trajectories are made anew and come out as they were: verified before.
    assert done == {"generate": 4, "judge": 8, "judge_call": 8, "train_step": 2}


def test_a_changed_verifier_is_offered_the_recovered_trajectories(tree: Tree, parent: str) -> None:
    fork = tree.fork(parent, versions={"verifier": "2"})
    decided = tree.decided(fork)
    assert offered(tree, fork) == {"verify": 4}
    assert names(decided)["TrialVerified"] == 0
    for event in tree.store.events_of(fork):
        if isinstance(event.fact(), ev.TrajectoryRecorded):
            assert _is_offered(event), "nobody holds it, so the relay publishes it"
    done = ended_well(tree, fork)
    # The same trajectories were found right and wrong as before: all that follows is as it was.
    assert done == {"verify": 8, "judge": 8}
    steps = tree.facts(ev.StepApplied, run=fork)
    assert [fact.provenance is not None for fact in steps] == [True, True]
    assert tree.http_calls.total() == 8, "the calls were found, too"


def test_a_trajectory_that_a_worker_holds_is_published_by_nobody(tree: Tree, parent: str) -> None:
    for event in tree.store.events_of(parent):
        if isinstance(event.fact(), ev.TrajectoryRecorded):
            assert not _is_offered(event)


@pytest.mark.parametrize("change", [{"lr": 1.0}, {"versions": {"learner": "2"}}])
def test_a_changed_learner_trains_on_the_recovered_judgments(
    tree: Tree, parent: str, change: dict[str, Any]
) -> None:
    fork = tree.fork(parent, **change)
    decided = tree.decided(fork)
    assert names(decided)["Judged"] == 4 and offered(tree, fork) == {"train_step": 1}
    done = ended_well(tree, fork)
    if "lr" in change:
        anew = trajectories(tree, fork) - trajectories(tree, parent)
        assert 0 < len(anew) < 4, "some come out as they were under the new weights, too"
        assert (done["train_step"], done["generate"], done["judge"]) == (2, 4, len(anew))
    else:  # the same weights came out, so the next step's trials are what they were
        assert done == {"train_step": 2}


def trajectories(tree: Tree, run_id: str) -> set[tuple[str, str]]:
    return {(f.trial_id, f.digest) for f in tree.facts(ev.TrajectoryRecorded, run=run_id)}


def test_trials_of_other_code_that_come_out_as_they_were_cost_nothing_further(
    tree: Tree, parent: str
) -> None:
    before = tree.http_calls.total()
    fork = tree.fork(parent, versions={"agent": "2"})
    assert ended_well(tree, fork) == {"generate": 8}
    assert tree.http_calls.total() == before
    kinds = (ev.TrialVerified, ev.Judged)
    assert {f.provenance.run_id for f in tree.facts(*kinds, run=fork)} == {parent}


def test_training_goes_on_where_the_parent_ended(tree: Tree, parent: str) -> None:
    fork = tree.fork(parent, n_steps=4)
    assert names(tree.decided(fork))["StepApplied"] == 2
    assert counted(executed(tree, fork)) == {}
    assert ended_well(tree, fork)["train_step"] == 2


def test_fewer_steps_take_no_more_than_they_need(tree: Tree, parent: str) -> None:
    fork = tree.fork(parent, n_steps=1)
    assert ended_well(tree, fork) == {}
    assert len(tree.facts(ev.StepApplied, run=fork)) == 1


def test_a_step_that_had_a_skip_is_recovered_trial_by_trial(tree: Tree) -> None:
    parent = tree.ended_run(**FAILS)
    fork = tree.fork(parent)
    decided = tree.decided(fork)
    assert names(decided)["Judged"] == 3 and names(decided)["StepApplied"] == 0
    assert offered(tree, fork) == {"generate": 1}, "the skipped one is tried anew"
    assert ended_well(tree, fork) == {}, "and skipped again"
    first, second = tree.facts(ev.StepApplied, run=fork)
    assert (first.whole, first.inputs_key, first.n_skipped) == (False, "", 1)
    assert second.whole, "the weights are the same: the rest is recovered whole"
    (request,) = tree.facts(ev.StepRequested, run=fork)
    assert request.settled


def test_a_skip_that_is_mended_is_executed_and_changes_the_weights(tree: Tree) -> None:
    parent = tree.ended_run(**FAILS)
    done = ended_well(tree, tree.fork(parent, faults={"always_fail": []}))
    # Its own, and all trials of the next step under new weights.
    assert (done["generate"], done["train_step"]) == (1 + 4, 2)


def test_a_recovered_step_counts_the_skips_of_the_run_that_it_is_in(tree: Tree) -> None:
    """The key of a step is made of its judgments: those that failed are not in it."""
    tried = {"prompts_per_step": 1, "n_samples": 3, "n_steps": 1}
    parent = tree.ended_run(**SHAPE | tried | {"faults": {"always_fail": ["s0-p0-n2"]}})
    fork = tree.fork(parent, n_samples=2, faults={"always_fail": []})
    assert ended_well(tree, fork) == {}
    (applied,) = tree.facts(ev.StepApplied, run=fork)
    assert (applied.n_trials, applied.n_skipped) == (2, 0)
    assert applied.inputs_key, "nothing was skipped here: it can be recovered whole"
    assert tree.facts(ev.StepApplied, run=tree.ended_fork(fork))[0].whole


TWINS: dict[str, Any] = {"n_steps": 1, "n_worlds": 1, "prompts_per_step": 1, "n_samples": 12}


@pytest.mark.parametrize("rubric", ["v1", one_by_one()], ids=["holistic", "one by one"])
def test_twins_keep_a_judgment_each(tree: Tree, rubric: Any) -> None:
    parent = tree.ended_run(**TWINS, max_turns=1, rubric=rubric)
    digests = Counter(fact.digest for fact in tree.facts(ev.TrajectoryRecorded))
    assert max(digests.values()) > 1, "there are twins"
    calls = 12 if rubric == "v1" else 3 * len(digests)
    assert tree.http_calls.total() == calls and set(tree.http_calls.values()) == {1}
    fork = tree.fork(parent, lr=1.0)
    tree.decided(fork)
    judged = tree.facts(ev.Judged, run=fork)
    assert len({fact.trial_id for fact in judged}) == 12
    theirs = {f.trial_id: (f.reward, f.bill, f.memo) for f in tree.facts(ev.Judged, run=parent)}
    assert {f.trial_id: (f.reward, f.bill, f.memo) for f in judged} == theirs
    assert ended_well(tree, fork) == {"train_step": 1}
    assert tree.http_calls.total() == calls


def test_steps_below_from_step_stand_in_another_shape(tree: Tree, parent: str) -> None:
    fork = tree.fork(parent, from_step=1, n_samples=3)
    decided = tree.decided(fork)
    (kept,) = (fact for fact in decided if isinstance(fact, ev.StepApplied))
    assert kept.whole and kept.n_trials == 4
    assert kept.inputs_key != tree.facts(ev.StepApplied, run=parent)[0].inputs_key, "its own"
    assert offered(tree, fork) == {"generate": 2}, "the third sample of each prompt"
    done = ended_well(tree, fork)
    assert done == {"generate": 2, "verify": 2, "judge": 2, "judge_call": 2, "train_step": 1}


def test_all_steps_may_stand(tree: Tree, parent: str) -> None:
    fork = tree.fork(parent, from_step=2, lr=0.5, rubric="v2-efficiency")
    assert ended_well(tree, fork) == {}


@pytest.mark.parametrize("broken", [0, 1])
def test_a_driver_that_is_to_crash_recovers_no_step_beyond(
    tree: Tree, parent: str, broken: int
) -> None:
    fork = tree.fork(parent, faults={"crash_driver_after_step": broken})
    tree.decided(fork)
    kinds = (ev.StepApplied, ev.FaultInjected)
    order = [type(fact).__name__ for fact in tree.facts(*kinds, run=fork)]
    expected = ["StepApplied", "StepApplied"]
    expected.insert(broken + 1, "FaultInjected")
    assert order == expected
    assert ended_well(tree, fork) == {}


def test_the_crash_of_a_parent_is_not_a_forks(tree: Tree) -> None:
    parent = tree.ended_run(**SHAPE | {"faults": {"crash_driver_after_step": 0}})
    assert len(tree.facts(ev.FaultInjected)) == 1
    assert ended_well(tree, tree.fork(parent)) == {}
    assert len(tree.facts(ev.FaultInjected)) == 1


def test_a_fork_of_a_fork_of_a_fork_finds_what_any_of_them_has(tree: Tree, parent: str) -> None:
    one = tree.ended_fork(parent, rubric="v2-efficiency")
    two = tree.ended_fork(one, lr=1.0)
    three = tree.fork(two, lr=2.0)
    assert ended_well(tree, three) == {}, "as it was two runs above"
    back = tree.fork(three, rubric="v1")
    assert ended_well(tree, back) == {}, "as it was at the root"
    sources = {fact.provenance.run_id for fact in tree.facts(ev.StepApplied, run=back)}
    assert sources == {parent}
    assert ended_well(tree, tree.fork(back)) == {}


def test_an_unchanged_fork_of_a_fork_with_kept_steps_executes_nothing(
    tree: Tree, parent: str
) -> None:
    for changes in ({"lr": 0.5}, {"n_samples": 3}, {"rubric": "v2-efficiency"}):
        kept = tree.ended_fork(parent, from_step=1, **changes)
        fork = tree.fork(kept)
        assert ended_well(tree, fork) == {}
        assert ended_well(tree, tree.fork(fork)) == {}


def test_of_two_ancestors_with_the_same_keys_the_nearest_is_recovered(tree: Tree) -> None:
    """Two runs of one tree executed the same, as when a run is forked while it goes on."""
    parent = tree.run(**SHAPE)
    fork = tree.fork(parent)
    tree.end(parent)
    tree.end(fork)
    both = executed(tree, parent) & executed(tree, fork)
    assert counted(both)["generate"] == 8 and tree.http_calls.total() == 8
    third = tree.fork(fork, lr=1.0)
    tree.decided(third)
    kinds = (ev.TrajectoryRecorded, ev.TrialVerified, ev.Judged)
    assert {f.provenance.run_id for f in tree.facts(*kinds, run=third)} == {fork}
    ended_well(tree, third)


def test_what_comes_after_the_pin_is_not_seen(tree: Tree) -> None:
    parent = tree.run(**SHAPE)
    tree.decided(parent)
    fork = tree.fork(parent)
    tree.end(parent)
    assert ended_well(tree, fork)["generate"] == 8
    assert not any(getattr(f, "settled", False) for f in tree.facts(run=fork))


def test_worlds_that_were_half_recorded_are_recovered_all_the_same(tree: Tree, parent: str) -> None:
    """A decision of many facts is several appends, and a driver may die between two of them."""
    fork = tree.fork(parent)
    world, built, *_ = (new_event(fork, fact) for fact in _first_decision(tree, fork))
    tree.commit(0, Append([world, built], owner_fence=tree.driver.fence)).check()
    assert ended_well(tree, fork) == {}


def _first_decision(tree: Tree, fork: str) -> list[ev.Fact]:
    tree.driver.follow()
    state = tree.driver.states[fork]
    return decide(state, 0.0, lambda: 0.0, now(Ancestors(tree.log).of(state))).facts


def test_a_lineage_of_another_step_is_refused(tree: Tree, parent: str) -> None:
    fork = tree.fork(parent, rubric="v2-efficiency")
    tree.driver.follow()
    state = tree.driver.states[fork]
    with pytest.raises(ValueError, match="is at step 0, not -1"):
        decide(state, 0.0, lambda: 0.0)


def test_kept_steps_that_the_parent_has_not_are_said(tree: Tree) -> None:
    parent = tree.run(**SHAPE)
    with pytest.raises(ForkRefusedError, match="has 0 applied step"):
        tree.fork(parent, from_step=1)


@pytest.mark.parametrize("most", [1, 2, 7, 500])
def test_a_cut_decision_keeps_a_request_and_its_answer_together(
    tree: Tree, parent: str, most: int
) -> None:
    facts = tree.decided(tree.fork(parent, lr=1.0))
    cut = list(chunks(facts, most))
    assert [fact for chunk in cut for fact in chunk] == facts and all(cut)
    assert len(cut) > 1 or most == 500
    for chunk in cut:
        settled = {fact.trial_id for fact in chunk if isinstance(fact, ev.TrialRequested)}
        assert settled == {fact.trial_id for fact in chunk if isinstance(fact, ev.Judged)}
        asked = {fact.world_id for fact in chunk if isinstance(fact, ev.WorldRequested)}
        assert asked == {fact.world_id for fact in chunk if isinstance(fact, ev.WorldBuilt)}
