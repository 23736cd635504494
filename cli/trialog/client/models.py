"""Shapes of the driver's answers, as typed dictionaries: the JSON itself, nothing renamed."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

RunState = Literal["running", "paused", "completed", "failed", "cancelled"]
ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled"})


class Counts(TypedDict):
    """How many actions a run executed, recovered and retried, by kind; and trials skipped."""

    executed: dict[str, int]
    recovered: dict[str, int]
    retried: dict[str, int]
    skipped: int


class Bill(TypedDict):
    """What judge calls cost: calls, tokens, US dollars."""

    judge_calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float


class Cost(Bill):
    """What a run paid the judge, and what it did not have to pay for: calls whose replies were on
    the log, and those under judgments that it recovered. ``calls_unrecorded`` of the calls started
    have no reply on the log: in flight, or lost with a worker that may have made them."""

    saved_by_memo: Bill
    saved_by_recovery: Bill
    calls_started: int
    calls_unrecorded: int


class Limits(TypedDict):
    """What a run may spend on judge calls; None: no limit."""

    judge_calls: int | None
    tokens: int | None
    usd: float | None


class Spent(TypedDict):
    """What counts against the limits."""

    judge_calls: int
    tokens: int
    usd: float


class RunBudget(TypedDict):
    """A run's limits, and what counts against them."""

    limits: Limits
    spent: Spent


class Step(TypedDict):
    """One optimizer step of a run; means are None until it is applied."""

    step: int
    state: str
    mean_reward: float | None
    mean_turns: float | None
    n_trials: int
    n_skipped: int
    n_requested: int
    n_recorded: int
    n_judged: int
    weights_version: int | None
    weights_digest: str | None
    actor: str | None
    trained: bool | None
    provenance: Provenance | None


class StepPage(TypedDict):
    """A page of steps; ``next_cursor`` is None on the last."""

    steps: list[Step]
    next_cursor: str | None


class Run(TypedDict):
    """A run in full. ``spec`` is the recorded RunSpec, defaults included; ``steps`` are the first
    thousand, and with ``steps_cursor`` list_steps goes on after them."""

    run_id: str
    state: RunState
    parent: str | None
    root: str
    mode: Literal["recompute", "rescore"]
    from_step: int
    rubric: str
    created_at: str
    labels: dict[str, str]
    spec: dict[str, Any]
    position: int
    failure: str | None
    n_steps: int
    steps_applied: int
    steps: list[Step]
    steps_cursor: str | None
    counts: Counts
    cost: Cost
    budget: RunBudget
    pauses: int
    pause_reason: str | None


class RunSummary(TypedDict):
    """A run's line in the list of runs."""

    run_id: str
    state: RunState
    parent: str | None
    rubric: str
    created_at: str
    labels: dict[str, str]
    steps_applied: int
    n_steps: int
    mean_reward: float | None


class RunPage(TypedDict):
    """A page of runs; ``next_cursor`` is None on the last."""

    runs: list[RunSummary]
    next_cursor: str | None


class Provenance(TypedDict):
    """Where an action's outcome was first recorded: ``executed`` by the run itself, or
    ``recovered`` from an ancestor."""

    state: Literal["executed", "recovered"]
    run_id: str
    position: int


class Turn(TypedDict):
    """One interaction of the agent: the document it read and whether it held the secret."""

    doc: int
    found: bool


class Trial(TypedDict):
    """One trial; ``trial_id`` is the id within its run. Without a verdict the scores are None.
    ``provenance`` is by action: generate, verify, judge; None for what is not done. Of a task:
    its name, what its verifier gave, in what mode, and the class of what went wrong."""

    trial_id: str
    step: int
    world_id: str
    task: str | None
    state: str
    attempts: int
    n_turns: int | None
    turns: list[Turn] | None
    answer: str | None
    files_written: list[str] | None
    found_doc: int | None
    verified: bool | None
    verifier_reward: float | None
    rewards: dict[str, float]
    mode: str | None
    error: str | None
    judge_score: float | None
    reward: float | None
    scores: dict[str, float]
    judge_calls: dict[str, int]
    provenance: dict[str, Provenance | None]
    skip_reason: str | None
    skip_message: str | None
    failures: list[Failure]


class Failure(TypedDict):
    """An attempt that failed; ``n`` counts from 0 within its budget."""

    stage: str
    failure: str
    error: str | None
    message: str
    n: int


class TrialPage(TypedDict):
    """A page of trials; ``next_cursor`` is None on the last."""

    trials: list[Trial]
    next_cursor: str | None


class Event(TypedDict):
    """One event of the log; ``data`` is the fact, ``recorded_at`` ISO 8601 in UTC."""

    position: int
    event_id: str
    run_id: str
    type: str
    schema_version: int
    data: dict[str, Any]
    recorded_at: str


class EventPage(TypedDict):
    """Events in order of position; ``next`` is the position to ask after."""

    events: list[Event]
    next: int


class TaskStep(TypedDict):
    """How a step of a task went. ``stopped``: its gate, ``min_reward``, ended the trial."""

    name: str
    played: bool
    n_turns: int | None
    rewards: dict[str, float] | None
    error: str | None
    message: str | None
    min_reward: float | dict[str, float] | None
    stopped: bool


class TrialDetail(Trial):
    """A trial with the events that are about it; ``steps`` are those of a task with several."""

    error_message: str | None
    steps: list[TaskStep] | None
    events: list[Event]


class Weights(TypedDict):
    """One version of the bandit's weights: world -> 8 unrounded numbers, one a document."""

    version: int
    digest: str
    doc_prior: dict[str, list[float]]


class DeadLetter(TypedDict):
    """Work that was given up: its message could not be handled."""

    key: str
    kind: str
    run_id: str
    error: str | None
    deliveries: int
    dead_since: str | None


class DeadLetterPage(TypedDict):
    """A page of dead work; ``next_cursor`` is None on the last."""

    dead_letters: list[DeadLetter]
    next_cursor: str | None


class Redriven(TypedDict):
    """Work that is offered again; that of a paused run once it is resumed."""

    key: str
    run_id: str
    run_state: Literal["running", "paused"]


class Verification(TypedDict):
    """How far the log's hash chain was walked, and where it is broken, None for nowhere."""

    broken_at: int | None
    checked_until: int
