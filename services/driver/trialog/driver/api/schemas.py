"""Shapes of the API's answers, for its OpenAPI description and its tests.

Answers are written from the read models' documents as they are: nothing is validated on the way
out, and tests hold the documents to these models.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trialog.driver.api.budget_schemas import RunBudget
from trialog.driver.api.trial_step_schemas import TrialStep
from trialog.proto.policy import N_DOCS

RunState = Literal["running", "paused", "completed", "failed", "cancelled"]
TrialState = Literal["requested", "recorded", "verified", "judged", "skipped", "cancelled"]
StepState = Literal["running", "training", "applied"]
RunMode = Literal["recompute", "rescore"]

RUN_ID = "r-abcdefghijklmnop"
TRIAL_ID = "s0-p1-n0"
WORK_KEY = f"{RUN_ID}/{TRIAL_ID}/generate"
WORK_KEY_PATTERN = r"^[!-~]{1,300}$"
_AT = "2026-11-30T12:00:00.000000+00:00"


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FieldProblem(_Shape):
    """One thing that is wrong in a request."""

    field: str = Field(description="A dotted path, a parameter or a header; empty: the whole.")
    message: str


class Problem(_Shape):
    """An error (RFC 9457). ``type`` is stable; ``title`` and ``detail`` are for people."""

    type: str = Field(examples=["urn:trialog:problem:no-such-run"])
    title: str = Field(examples=["No such run"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=[f"there is no run {RUN_ID}"])
    instance: str = Field(examples=[f"/runs/{RUN_ID}"])
    errors: list[FieldProblem] = []


class ActionCounts(_Shape):
    """Actions by kind."""

    build_world: int
    generate: int
    verify: int
    judge_call: int
    judge: int
    train_step: int


class StageCounts(_Shape):
    """Events by stage."""

    build_world: int
    generate: int
    verify: int
    judge: int
    train_step: int


class Counts(_Shape):
    """What a run did. Recovered actions were recorded by an ancestor and cost nothing."""

    executed: ActionCounts
    recovered: ActionCounts
    retried: StageCounts
    lost: StageCounts = Field(description="Attempts whose worker vanished.")
    skipped: int


class Bill(_Shape):
    """What judge calls cost; money to the millionth of a dollar."""

    judge_calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float


class Cost(Bill):
    """What the judge calls that this run made cost, their replies valid or not, and what it did not
    have to pay for."""

    saved_by_memo: Bill = Field(
        description="Calls under judgments made here whose replies were on the log: of a twin, an "
        "earlier attempt, another run of the tree."
    )
    saved_by_recovery: Bill = Field(description="Calls under judgments that were recovered.")
    calls_started: int = Field(description="Claims of a call, each at most one call.")
    calls_unrecorded: int = Field(
        description="Calls started without a reply on the log: in flight now, found no judge, or "
        "made by a worker that died before it could record the reply."
    )


class Provenance(_Shape):
    """Where an action's outcome was first recorded: ``executed`` by this run, or ``recovered`` from
    an ancestor's log, where it was paid for."""

    state: Literal["executed", "recovered"]
    run_id: str = Field(examples=[RUN_ID])
    position: int


class Provenances(_Shape):
    """The three actions of a trial; null: not done yet, or never."""

    generate: Provenance | None
    verify: Provenance | None
    judge: Provenance | None


class Calls(_Shape):
    """Judge calls recorded for a trial: made by this run, or taken over from another of its tree.
    A recovered judgment takes none."""

    executed: int
    recovered: int


class Fault(_Shape):
    """A fault that the run asked for and that struck."""

    kind: str
    step: int
    recorded_at: datetime


class Step(_Shape):
    """One optimizer step. Means, weights and actor are null until it is applied."""

    step: int
    state: StepState
    position: int = Field(description="Position of the step's last event on the log.")
    mean_reward: float | None
    mean_turns: float | None
    n_trials: int = Field(description="Trials that are scored.")
    n_skipped: int
    n_cancelled: int
    n_requested: int
    n_recorded: int
    n_judged: int
    weights_version: int | None
    weights_digest: str | None
    actor: str | None
    pid: int | None
    trained: bool | None = Field(description="False: nothing to train on, the weights stayed.")
    provenance: Provenance | None = Field(description="Null until the step is applied.")
    source: str | None = Field(description="The run whose trials a step has, recovered whole.")
    requested_at: datetime
    applied_at: datetime | None


class Run(_Shape):
    """A run in full. ``spec`` is the recorded RunSpec, defaults included, the rubric whole."""

    run_id: str = Field(examples=[RUN_ID])
    state: RunState
    parent: str | None
    root: str = Field(description="The run that its tree began with.")
    mode: RunMode = Field(description="rescore: it only judges its parent's trajectories.")
    from_step: int = Field(description="Steps below it stand as the parent has them.")
    rubric: str = Field(examples=["v1"])
    created_at: datetime = Field(examples=[_AT])
    ended_at: datetime | None
    labels: dict[str, str]
    spec: dict[str, Any]
    position: int = Field(description="Position of the run's last event on the log.")
    failure: str | None
    n_steps: int
    current_step: int | None = Field(description="The last step that has begun.")
    steps_applied: int
    mean_reward: float | None = Field(description="Of the last applied step.")
    weights_version: int
    weights_digest: str
    steps: list[Step] = Field(description="The first thousand.")
    steps_cursor: str | None = Field(
        description="Where /runs/{run_id}/steps goes on; null when these are all."
    )
    counts: Counts
    cost: Cost
    budget: RunBudget
    faults: list[Fault]
    pauses: int
    pause_reason: str | None = Field(description="Why it is paused, where nobody asked for it.")


class RunSummary(_Shape):
    """A run's line in the list."""

    run_id: str = Field(examples=[RUN_ID])
    state: RunState
    parent: str | None
    rubric: str
    created_at: datetime
    labels: dict[str, str]
    steps_applied: int
    n_steps: int
    mean_reward: float | None


class RunPage(_Shape):
    """Runs, newest first; ``next_cursor`` is null on the last page."""

    runs: list[RunSummary]
    next_cursor: str | None


class StepPage(_Shape):
    """Steps in order; ``next_cursor`` is null on the last page."""

    steps: list[Step]
    next_cursor: str | None


class Failure(_Shape):
    """An attempt that failed; ``n`` counts from 0 within its budget."""

    stage: str
    failure: Literal["infrastructure", "agent", "task", "timeout", "injected", "lost"]
    error: str | None = Field(description="The class of what went wrong, where it has a name.")
    message: str
    n: int


class Trial(_Shape):
    """One trial. What has not happened yet, or never will, is null: no verdict is no score."""

    run_id: str = Field(examples=[RUN_ID])
    trial_id: str = Field(examples=[TRIAL_ID])
    step: int
    world_id: str
    task: str | None = Field(description="The task's name; null in the reference world.")
    state: TrialState
    position: int
    weights_version: int
    requested_at: datetime
    ended_at: datetime | None
    attempts: int = Field(description="1 and every retry; lost workers are not counted.")
    attempts_by_stage: dict[str, int]
    attempt: int | None = Field(description="The attempt whose trajectory was kept, from 0.")
    n_turns: int | None
    turns: list[dict[str, Any]] | None = Field(examples=[[{"doc": 3, "found": True}]])
    answer: str | None
    files_written: list[str] | None
    found_doc: int | None
    verified: bool | None
    verifier_reward: float | None = Field(description="Of a task: what its verifier gave.")
    rewards: dict[str, float] = Field(description="Of a task: all that its verifier gave.")
    mode: str | None = Field(
        description="In what a task was graded.", examples=["shared", "separate", "restored"]
    )
    error: str | None = Field(
        description="The class of what ended it other than by itself; a trial whose agent ran out "
        "of time has one and is graded all the same.",
        examples=["AgentTimeoutError"],
    )
    judge_score: float | None
    scores: dict[str, float]
    reward: float | None = Field(description="The one that trains: null without a verdict.")
    judge_calls: Calls
    provenance: Provenances
    trajectory: str | None = Field(description="Digest of the trajectory's bytes.")
    skip_reason: str | None
    skip_message: str | None
    failures: list[Failure] = Field(description="The last 20.")


class TrialPage(_Shape):
    """Trials in order of the text of their ids; ``next_cursor`` is null on the last page."""

    trials: list[Trial]
    next_cursor: str | None


class Event(_Shape):
    """One event of the log."""

    position: int
    event_id: str
    run_id: str
    type: str = Field(examples=["TrialRequested"])
    schema_version: int
    data: dict[str, Any]
    recorded_at: datetime


class EventPage(_Shape):
    """Events in order of position; ``next`` is what to ask after."""

    events: list[Event]
    next: int


class TrialDetail(Trial):
    """A trial with the events that name it."""

    error_message: str | None = Field(description="What is said of the agent's error.")
    steps: list[TrialStep] | None = Field(description="Of a task with several; else null.")
    events: list[Event]


class Weights(_Shape):
    """One version of the weights: for every world a number a document, unrounded."""

    version: int
    digest: str
    doc_prior: dict[str, list[float]] = Field(examples=[{"w0": [1.0] * N_DOCS}])


class DeadLetter(_Shape):
    """Work whose message could not be handled; its run goes on without it, or waits for it."""

    key: str = Field(examples=[WORK_KEY])
    kind: str = Field(description="The queue that handed it out.", examples=["trial"])
    run_id: str = Field(examples=[RUN_ID])
    error: str | None = Field(description="Of the last delivery, when it was recorded.")
    deliveries: int = Field(description="In all; 5 more after each time it is offered again.")
    dead_since: datetime | None


class DeadLetterPage(_Shape):
    """Dead work in order of its keys; ``next_cursor`` is null on the last page."""

    dead_letters: list[DeadLetter]
    next_cursor: str | None


class Redrive(_Shape):
    """Which dead work is to be offered again."""

    key: str = Field(pattern=WORK_KEY_PATTERN, examples=[WORK_KEY])


class Redriven(_Shape):
    """Work that is offered again: soon, or when its run is no longer paused."""

    key: str = Field(examples=[WORK_KEY])
    run_id: str = Field(examples=[RUN_ID])
    run_state: Literal["running", "paused"]


class Verification(_Shape):
    """``broken_at`` is the first position whose hash does not follow from the one before."""

    broken_at: int | None
    checked_until: int


class Process(_Shape):
    """A process that holds its presence lock."""

    worker: str = Field(examples=["driver-2f1c0a"])
    service: str
    host: str
    pid: int
    registered_at: datetime


class Processes(_Shape):
    """Processes that are present, oldest first."""

    processes: list[Process]


class Health(_Shape):
    """The process answers."""

    status: Literal["ok", "ready"]
