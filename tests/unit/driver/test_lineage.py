"""The index of what ancestors have: by subject and key, nearest first, with who paid for it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from support import facts as f
from trialog.driver.lineage import NOTHING, Lineage, Seen, found_in, generated, whole_steps
from trialog.proto import events as ev

PARENT, ABOVE = "r-parent", "r-above"
TRIAL, TWIN = "s0-p0-n0", "s0-p0-n1"
PAID_ABOVE = ev.Provenance(ABOVE, 3)


def seen(*facts: ev.Fact, run_id: str = PARENT, after: int = 0) -> list[Seen]:
    """Return facts as they stand in an ancestor, from a position on."""
    return [Seen(fact, run_id, at) for at, fact in enumerate(facts, after + 1)]


KINDS: list[tuple[Any, str]] = [
    (ev.WorldBuilt("w0", "world-key", "d"), "w0"),
    (f.trajectory(TRIAL), TRIAL),
    (f.verified(TRIAL), TRIAL),
    (f.judged(TRIAL), TRIAL),
    (f.step_applied(4), "step-4"),
]


@pytest.mark.parametrize(("fact", "subject"), KINDS, ids=lambda one: type(one).__name__)
def test_a_fact_is_found_by_its_subject_and_key_with_where_it_stands(
    fact: Any, subject: str
) -> None:
    lineage = Lineage(0, {}, found_in(seen(fact, after=6)))
    got = lineage.recover(type(fact), subject, fact.action_key)
    assert got == replace(fact, provenance=ev.Provenance(PARENT, 7))
    assert lineage.recover(type(fact), subject, "another key") is None
    assert lineage.recover(type(fact), "another subject", fact.action_key) is None
    other = ev.Judged if not isinstance(fact, ev.Judged) else ev.TrialVerified
    assert lineage.recover(other, subject, fact.action_key) is None, "of another kind"
    assert NOTHING.recover(type(fact), subject, fact.action_key) is None


@pytest.mark.parametrize(("fact", "subject"), KINDS, ids=lambda one: type(one).__name__)
def test_what_was_recovered_before_says_who_paid_for_it(fact: Any, subject: str) -> None:
    again = replace(fact, provenance=PAID_ABOVE)
    found = found_in(seen(again, after=6))
    assert found[subject, fact.action_key].provenance == PAID_ABOVE


@pytest.mark.parametrize(("fact", "subject"), KINDS, ids=lambda one: type(one).__name__)
def test_of_two_ancestors_with_one_key_the_nearest_counts(fact: Any, subject: str) -> None:
    near, far = seen(fact, after=40), seen(fact, run_id=ABOVE)
    found = found_in([*near, *far])
    assert found[subject, fact.action_key].provenance == ev.Provenance(PARENT, 41)


def test_twins_are_two_subjects() -> None:
    one, other = f.judged(TRIAL), f.judged(TWIN)
    assert one.action_key == other.action_key
    found = found_in(seen(one, other))
    assert set(found) == {(TRIAL, "judge-key"), (TWIN, "judge-key")}


def test_no_outcome_is_no_result_for_another_run() -> None:
    ends: list[ev.Fact] = [
        ev.TrialSkipped(TRIAL, 0, "step_deadline"),
        ev.TrialCancelled(TWIN, 0),
        f.trial_requested(TRIAL),
        f.step_requested(0),
        f.step_applied(0, trained=False),
        f.judge_call(TRIAL),
    ]
    assert found_in(seen(*ends)) == {}


def test_a_step_that_was_recovered_whole_is_found_where_it_was_trained() -> None:
    """What its whole result names is where its trials are, not who paid for the step."""
    whole = f.step_applied(0, whole=True, provenance=ev.Provenance(ABOVE, 3))
    there = f.step_applied(0, provenance=ev.Provenance("r-root", 2))
    found = found_in([*seen(whole), *seen(there, run_id=ABOVE, after=2)])
    assert found["step-0", "step-key"] == there


def test_whole_steps_are_by_inputs_the_parents_first_and_name_where_their_trials_are() -> None:
    own = f.step_applied(0, inputs_key="a", provenance=ev.Provenance("r-root", 2))
    kept = f.step_applied(1, inputs_key="b", whole=True, provenance=PAID_ABOVE)
    above = f.step_applied(0, inputs_key="c")
    found = whole_steps([*seen(own, kept, after=8), *seen(above, run_id=ABOVE, after=2)])
    lineage = Lineage(0, found)
    at = ev.Provenance(PARENT, 9)
    assert lineage.whole_step(0, "a") == replace(own, whole=True, provenance=at)
    assert lineage.whole_step(0, "c") == replace(above, whole=True, provenance=PAID_ABOVE)
    assert lineage.whole_step(1, "b") == kept, "its trials are where it says"
    assert lineage.whole_step(0, "b") is None and lineage.whole_step(2, "a") is None
    assert lineage.whole_step(0, None) == lineage.whole_step(0, "a"), "the parent's own"


def test_a_step_without_an_inputs_key_is_only_found_when_any_will_do() -> None:
    lineage = Lineage(0, whole_steps(seen(f.step_applied(0, n_skipped=1))))
    assert lineage.whole_step(0, "a") is None
    kept = lineage.whole_step(0, None)
    assert kept is not None and kept.whole and kept.n_skipped == 1


def test_what_is_judged_anew_comes_trial_by_trial_and_offers_what_is_left() -> None:
    late = "s0-p1-n0"
    there = seen(
        f.trial_requested(TWIN),
        f.trial_requested(TRIAL),
        f.trial_requested(late),
        f.trajectory(TRIAL),
        f.trajectory(TWIN, provenance=PAID_ABOVE),
        f.verified(TWIN, provenance=PAID_ABOVE),
    )
    taken = generated(there)
    assert [(type(fact), getattr(fact, "trial_id", "")) for fact in taken] == [
        (ev.TrialRequested, TWIN),
        (ev.TrajectoryRecorded, TWIN),
        (ev.TrialVerified, TWIN),
        (ev.TrialRequested, TRIAL),
        (ev.TrajectoryRecorded, TRIAL),
    ], "what was not tried is no trial of a run that only judges"
    settled = [getattr(fact, "settled", None) for fact in taken]
    assert settled == [True, True, False, True, False]
    sources = [getattr(fact, "provenance", None) for fact in taken]
    assert sources == [None, PAID_ABOVE, PAID_ABOVE, None, ev.Provenance(PARENT, 4)]


def test_what_an_ancestor_had_settled_is_decided_anew() -> None:
    tried = replace(f.trajectory(TRIAL), settled=True)
    checked = replace(f.verified(TRIAL), settled=True)
    asked = f.trial_requested(TRIAL)
    cut = generated(seen(asked, tried))
    assert [fact.settled for fact in cut if isinstance(fact, ev.TrajectoryRecorded)] == [False]
    both = generated(seen(asked, tried, checked))
    assert [fact.settled for fact in both if isinstance(fact, ev.TrialVerified)] == [False]
