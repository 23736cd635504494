"""What a fork's plan says that its calls will cost, and from what it knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support.folding import Folded
from trialog.driver.plan import CallCost, Plan

ONE = CallCost(1, 10, 2, 3)


def estimate(rubric: str, costs: Mapping[str, CallCost]) -> dict[str, Any]:
    plan = Plan(Folded(rubric=rubric).state, {})
    plan.add_rest(1)
    return plan.shown(costs)["estimate"]


@pytest.mark.parametrize("costs", [{}, {"*": ONE}])
def test_a_run_without_a_judge_costs_nothing(costs: Mapping[str, CallCost]) -> None:
    found = estimate("instant", costs)
    assert found["usd"] == found["tokens"] == {"at_least": 0, "at_most": 0}
    assert found["basis"] == "nothing: no judge is to be asked"


@pytest.mark.parametrize(
    ("calls", "basis"),
    [
        (0, "no judge call is recorded that tokens and cost could be estimated from"),
        (1, "the mean by criterion of 1 recorded call"),
        (2, "the mean by criterion of 2 recorded calls"),
    ],
)
def test_it_says_from_how_many_calls(calls: int, basis: str) -> None:
    found = estimate("v1", {"*": CallCost(calls, 10, 2, 3)} if calls else {})
    assert found["basis"] == basis
    assert (found["usd"] is None) == (calls == 0)
