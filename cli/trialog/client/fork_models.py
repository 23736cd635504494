"""Shapes of the driver's answers about forks, as typed dictionaries: the JSON itself."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from trialog.client.models import Cost, Counts, Provenance, RunState
from trialog.client.rubric_models import Criterion, CriterionChange, ScoringChange

Mode = Literal["recompute", "rescore"]


class PlannedActions(TypedDict):
    """Actions of one kind: recovered, executed, and unknown until an earlier step is executed.
    ``reasons`` say why they are not recovered."""

    recovered: int
    executed: int
    unknown: int
    reasons: list[str]


class PlannedStep(TypedDict):
    """A step of a plan, or all from ``step`` to ``until``; ``actions`` are by kind."""

    step: int
    until: int
    actions: dict[str, PlannedActions]


class Range(TypedDict):
    """What something takes at least and at most."""

    at_least: float
    at_most: float


class Estimate(TypedDict):
    """What a fork's judge calls would cost; None where nothing recorded tells."""

    judge_calls: Range
    tokens: Range | None
    usd: Range | None
    basis: str


class Plan(TypedDict):
    """What a fork would recover and execute; ``totals`` and actions are by kind."""

    dry_run: Literal[True]
    parent: str
    position: int
    mode: Mode
    from_step: int
    totals: dict[str, dict[str, int]]
    steps: list[PlannedStep]
    estimate: Estimate


class RubricChanges(TypedDict):
    """What differs between two rubrics, by criterion."""

    scoring: ScoringChange | None
    added: list[Criterion]
    removed: list[Criterion]
    changed: list[CriterionChange]
    reordered: bool


Change = TypedDict("Change", {"field": str, "from": Any, "to": Any, "rubric": RubricChanges | None})
"""A setting that differs; ``rubric`` is there for the rubric alone."""


class Ancestor(TypedDict):
    """An ancestor of a run, and what the next one, nearer to the run, changed."""

    run_id: str
    position: int
    state: RunState
    mode: Mode
    from_step: int
    rubric: str
    changes: list[Change]


class TreeRun(TypedDict):
    """A run's line in its tree; ``executed`` and ``recovered`` are by kind of action."""

    run_id: str
    parent: str | None
    state: RunState
    mode: Mode
    from_step: int
    rubric: str
    created_at: str
    steps_applied: int
    n_steps: int
    mean_reward: float | None
    executed: dict[str, int]
    recovered: dict[str, int]
    cost: Cost


class Lineage(TypedDict):
    """A run's ancestors, the parent first, and a page of its whole tree, oldest first."""

    run_id: str
    root: str
    ancestors: list[Ancestor]
    runs: list[TreeRun]
    next_cursor: str | None


class Compared(TypedDict):
    """Rewards of two runs, a and b: means are over the ``n`` trials that are scored in both, and
    ``delta`` is b minus a."""

    n: int
    mean_reward: dict[str, float | None]
    delta: float | None
    n_trials: dict[str, int]
    n_scored: dict[str, int]


class StepSide(TypedDict):
    """A step as one of the runs has it."""

    state: str
    mean_reward: float | None
    n_skipped: int
    trained: bool | None
    provenance: Provenance | None


class StepCompared(Compared):
    """One step of both runs; the side of a run that has not begun it is None."""

    step: int
    a: StepSide | None
    b: StepSide | None


class TrialSide(TypedDict):
    """A trial as one of the runs has it."""

    state: str
    reward: float | None
    judge_score: float | None
    scores: dict[str, float]
    verified: bool | None
    found_doc: int | None
    n_turns: int | None
    skip_reason: str | None
    judge_calls: dict[str, int]
    provenance: dict[str, Provenance | None]


class TrialDelta(TypedDict):
    """b minus a; None for a criterion that only one of the two scored."""

    reward: float
    scores: dict[str, float | None]


class TrialCompared(TypedDict):
    """One trial of both runs; without a reward on both sides there is no delta."""

    trial_id: str
    step: int
    a: TrialSide | None
    b: TrialSide | None
    same_trajectory: bool | None
    delta: TrialDelta | None


class RunSide(TypedDict):
    """One of two runs that are compared."""

    run_id: str
    parent: str | None
    root: str
    state: RunState
    mode: Mode
    rubric: str
    steps_applied: int
    n_steps: int
    mean_reward: float | None
    counts: Counts
    cost: Cost


class Comparison(TypedDict):
    """Two runs side by side. Only the first page has ``totals`` and ``steps``."""

    a: RunSide
    b: RunSide
    same_tree: bool
    totals: Compared | None
    steps: list[StepCompared]
    steps_left_out: int
    trials: list[TrialCompared]
    next_cursor: str | None
