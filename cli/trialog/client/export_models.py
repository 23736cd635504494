"""Shapes of exports and of how tasks went, as typed dictionaries: the JSON itself."""

from __future__ import annotations

from typing import TypedDict


class TaskCounts(TypedDict):
    """What became of trials. Means are over those with a verdict (``scored``), None without any;
    ``unscored`` ended without one, ``open`` have not ended."""

    trials: int
    scored: int
    unscored: int
    open: int
    mean_reward: float | None
    rewards: dict[str, float | None]
    errors: dict[str, int]
    modes: dict[str, int]


class TaskResult(TaskCounts):
    """How one task went; in the reference world a world."""

    task: str


class TaskTotals(TaskCounts):
    """Counts over all trials, means over the tasks that have one."""

    tasks: int
    tasks_scored: int


class TaskResults(TypedDict):
    """How the tasks of a run went."""

    run_id: str
    state: str
    totals: TaskTotals
    tasks: list[TaskResult]


class Message(TypedDict):
    """What the policy was given before its first turn."""

    role: str
    content: str


class ToolCall(TypedDict):
    """A call that the policy made; ``arguments`` is JSON text."""

    id: str | None
    name: str | None
    arguments: str


class Observation(TypedDict):
    """What a call answered."""

    call_id: str | None
    text: str


class RowTurn(TypedDict):
    """One step of a trajectory: by the agent, or said to it."""

    source: str
    task_step: str | None
    text: str
    reasoning: str | None
    tool_calls: list[ToolCall]
    observations: list[Observation]
    weights_version: int | None


class Tokens(TypedDict):
    """A sequence as the model saw and sampled it; the mask is 1 on the policy's own tokens."""

    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float | None] | None


class Row(TypedDict):
    """One trial for training. Columns of tokens are None where no ids were recorded, and where they
    make several sequences, which are the ``segments`` then."""

    run_id: str
    step: int
    task: str
    trial_id: str
    group_id: str
    sample: int
    state: str
    instruction: str
    prompt: list[Message]
    turns: list[RowTurn]
    prompt_token_ids: list[int] | None
    completion_token_ids: list[int] | None
    loss_mask: list[int] | None
    logprobs: list[float | None] | None
    segments: list[Tokens] | None
    reward: float | None
    reward_valid: bool
    rewards: dict[str, float] | None
    scores: dict[str, float] | None
    error: str | None
    mode: str | None
    weights_version: int


class RowPage(TypedDict):
    """Rows in order of the text of their trial ids; ``next_cursor`` is None on the last page."""

    rows: list[Row]
    next_cursor: str | None
