"""Shape of a fork's plan, with an example."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trialog.driver.api.schemas import RUN_ID


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PlannedCount(_Shape):
    """Actions of one kind. ``unknown``: they depend on what is executed first; at most so many."""

    recovered: int
    executed: int
    unknown: int


class PlannedActions(PlannedCount):
    """The same in one step, with the reasons why they are not recovered."""

    reasons: list[str]


class PlannedStep(_Shape):
    """A step, or, with ``until`` above ``step``, a range of steps beyond the first thousand."""

    step: int
    until: int
    actions: dict[str, PlannedActions]


class Bounds(_Shape):
    """What is certain, and what it is at most."""

    at_least: float
    at_most: float


class Estimate(_Shape):
    """What the fork's judge calls would cost, and what that is estimated from."""

    judge_calls: Bounds
    tokens: Bounds | None
    usd: Bounds | None
    basis: str


class Plan(_Shape):
    """What a fork would recover and execute; nothing is recorded."""

    dry_run: Literal[True]
    parent: str
    position: int = Field(description="Position up to which the parent would be seen.")
    mode: Literal["recompute", "rescore"]
    from_step: int
    totals: dict[str, PlannedCount]
    steps: list[PlannedStep]
    estimate: Estimate


def _count(recovered: int, executed: int, *reasons: str) -> dict[str, Any]:
    return {
        "recovered": recovered,
        "executed": executed,
        "unknown": 0,
        "reasons": list(reasons),
    }


_RUBRIC = "rubric digest changed"
_STEP: dict[str, Any] = {
    "build_world": _count(3, 0),
    "generate": _count(6, 0),
    "verify": _count(6, 0),
    "judge_call": _count(0, 6, "rubric name changed: v1 -> v2-efficiency"),
    "judge": _count(0, 6, _RUBRIC),
    "train_step": _count(0, 1, "its judgments are made anew"),
}
EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    Plan: {
        "dry_run": True,
        "parent": RUN_ID,
        "position": 147,
        "mode": "recompute",
        "from_step": 0,
        "totals": {
            kind: {name: count[name] for name in ("recovered", "executed", "unknown")}
            for kind, count in _STEP.items()
        },
        "steps": [{"step": 0, "until": 0, "actions": _STEP}],
        "estimate": {
            "judge_calls": {"at_least": 6, "at_most": 6},
            "tokens": {"at_least": 786, "at_most": 786},
            "usd": {"at_least": 0.003582, "at_most": 0.003582},
            "basis": "the mean by criterion of 18 recorded calls",
        },
    }
}
