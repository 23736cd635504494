"""Shapes of a run's budget, as it is shown and as it is changed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from trialog.proto.runspec import Budget


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Limits(_Shape):
    """What a run may spend on judge calls of its own; null: no limit."""

    judge_calls: int | None
    tokens: int | None
    usd: float | None


class Spent(_Shape):
    """What counts against the limits: calls that were made, and as much as it might have been for
    each that may have been made and has no reply on the log."""

    judge_calls: int
    tokens: int = Field(description="Prompt and completion.")
    usd: float


class RunBudget(_Shape):
    """A run's budget, as it was asked for or last resumed with."""

    limits: Limits
    spent: Spent


class Resumption(_Shape):
    """What changes as a run goes on. A limit that is left out stays, null lifts it."""

    budget: Budget = Budget()
