"""A step that other code had a hand in is not what its inputs' key says: nobody recovers it whole,
but its single facts serve those who expect that code."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from support import facts as f
from support.folding import Folded
from trialog.driver.lineage import Paid, Seen, found_in
from trialog.proto import events as ev

PAID: list[Any] = [
    f.trajectory("s0-p0-n0"),
    f.verified("s0-p0-n0"),
    Folded().judged("s0-p0-n0"),
]


def step_of(run: Folded, *, unpinned: int | None) -> ev.StepRequested:
    """Judge all trials, one of them by other code; return the request of their step."""
    run.build_worlds()
    for n, trial in enumerate(list(run.state.open_trials())):
        run.record(replace(run.judged(trial.trial_id), unpinned=n == unpinned))
    (request,) = run.settle()
    assert isinstance(request, ev.StepRequested)
    return request


def test_a_step_of_the_code_that_was_pinned_can_be_recovered_whole() -> None:
    run = Folded()
    assert step_of(run, unpinned=None).inputs_key == run.state.keys.step_inputs(
        0, run.state.weights_digest, ["w0", "w1", "w2"]
    )


@pytest.mark.parametrize("trial", [0, 5])
def test_one_judgment_by_other_code_keeps_its_step_from_being_recovered_whole(trial: int) -> None:
    run = Folded(n_steps=2)
    assert step_of(run, unpinned=trial).inputs_key == ""
    run.record(run.applied())
    run.settle()
    assert step_of(run, unpinned=None).inputs_key, "the next step is another matter"


@pytest.mark.parametrize("fact", PAID, ids=lambda fact: type(fact).__name__)
def test_what_is_recovered_is_what_the_fork_expects(fact: Paid) -> None:
    other = replace(fact, unpinned=True)
    (found,) = found_in([Seen(other, "r-parent", 7)]).values()
    assert found == replace(fact, provenance=ev.Provenance("r-parent", 7))
