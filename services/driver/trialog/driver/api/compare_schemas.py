"""Shapes of the answers that put runs side by side: a comparison, a lineage."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trialog.driver.api.rubric_schemas import CriterionChange, ScoringChange
from trialog.driver.api.schemas import (
    RUN_ID,
    TRIAL_ID,
    ActionCounts,
    Calls,
    Cost,
    Counts,
    Provenance,
    Provenances,
    RunMode,
    RunState,
    StepState,
    TrialState,
)
from trialog.proto.rubric import Criterion


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Means(_Shape):
    """A mean of each run; null without a trial that is scored in both."""

    a: float | None
    b: float | None


class Numbers(_Shape):
    """A number of each run."""

    a: int
    b: int


class Compared(_Shape):
    """Rewards of two runs over the trials that are scored in both."""

    n: int = Field(description="Trials that are scored in both runs: what the means are over.")
    mean_reward: Means
    delta: float | None = Field(description="B minus A, of the means before they are rounded.")
    n_trials: Numbers = Field(description="Trials that each run has.")
    n_scored: Numbers = Field(description="Trials that each run has scored.")


class StepSide(_Shape):
    """A step as one of the runs has it; the mean is over all that this run scored in it."""

    state: StepState
    mean_reward: float | None
    n_skipped: int
    trained: bool | None
    provenance: Provenance | None


class StepCompared(Compared):
    """One step of both runs; the side of a run that has not begun it is null."""

    step: int
    a: StepSide | None
    b: StepSide | None


class TrialSide(_Shape):
    """A trial as one of the runs has it."""

    state: TrialState
    reward: float | None
    judge_score: float | None
    scores: dict[str, float]
    verified: bool | None
    found_doc: int | None
    n_turns: int | None
    skip_reason: str | None
    judge_calls: Calls
    provenance: Provenances


class TrialDelta(_Shape):
    """B minus A; null for a criterion that only one of the two scored."""

    reward: float
    scores: dict[str, float | None]


class TrialCompared(_Shape):
    """One trial of both runs. The side of a run that does not have it is null; without a reward on
    both sides there is no delta."""

    trial_id: str = Field(examples=[TRIAL_ID])
    step: int
    a: TrialSide | None
    b: TrialSide | None
    same_trajectory: bool | None = Field(
        description="Whether both have the same one, byte for byte; null until both have one."
    )
    delta: TrialDelta | None


class RunSide(_Shape):
    """One of the two runs that are compared."""

    run_id: str = Field(examples=[RUN_ID])
    parent: str | None
    root: str
    state: RunState
    mode: RunMode
    rubric: str
    steps_applied: int
    n_steps: int
    mean_reward: float | None = Field(description="Of its last applied step.")
    counts: Counts
    cost: Cost


class Comparison(_Shape):
    """Two runs side by side; deltas are B minus A. ``next_cursor`` is null on the last page."""

    a: RunSide
    b: RunSide
    same_tree: bool = Field(description="False: they share no ancestor, so neither recovered.")
    totals: Compared | None = Field(
        description="Of all trials, or of the step asked for. Only on the first page."
    )
    steps: list[StepCompared] = Field(description="The first thousand. Only on the first page.")
    steps_left_out: int
    trials: list[TrialCompared]
    next_cursor: str | None


class RubricRef(_Shape):
    """A rubric, without its text."""

    name: str
    digest: str


class RubricChanges(_Shape):
    """What differs between two rubrics, by criterion."""

    scoring: ScoringChange | None = Field(description="Null where it is the same.")
    added: list[Criterion]
    removed: list[Criterion]
    changed: list[CriterionChange]
    reordered: bool = Field(description="Criteria that both have stand in another order.")


class Change(_Shape):
    """A setting that differs; null: it is not there. A rubric comes as its name and digest."""

    field: str = Field(
        description="A dotted path, `rubric`, or `code.NAME` for the version of a piece of code.",
        examples=["faults.flaky_trial_rate"],
    )
    from_: Any = Field(alias="from")
    to: Any
    rubric: RubricChanges | None = Field(description="Of `rubric`: what differs in it.")


class Ancestor(_Shape):
    """An ancestor of a run, and what the next one, nearer to the run, changed."""

    run_id: str = Field(examples=[RUN_ID])
    position: int = Field(description="The run sees its log up to here.")
    state: RunState
    mode: RunMode
    from_step: int
    rubric: str
    changes: list[Change]


class TreeRun(_Shape):
    """A run's line in its tree."""

    run_id: str = Field(examples=[RUN_ID])
    parent: str | None
    state: RunState
    mode: RunMode
    from_step: int
    rubric: str
    created_at: datetime
    steps_applied: int
    n_steps: int
    mean_reward: float | None = Field(description="Of its last applied step.")
    executed: ActionCounts
    recovered: ActionCounts
    cost: Cost


class Lineage(_Shape):
    """Where a run comes from, and a page of its whole tree, oldest first. A run that is no fork has
    no ancestors."""

    run_id: str = Field(examples=[RUN_ID])
    root: str
    ancestors: list[Ancestor] = Field(description="The parent first.")
    runs: list[TreeRun]
    next_cursor: str | None
