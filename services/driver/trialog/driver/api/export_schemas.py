"""Shapes of rows for training, for the API's description."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trialog.driver.api.schemas import RUN_ID, TRIAL_ID, TrialState


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Message(_Shape):
    """What the policy was given before its first turn."""

    role: str = Field(examples=["user"])
    content: str


class ToolCall(_Shape):
    """A call that the policy made."""

    id: str | None
    name: str | None
    arguments: str = Field(description="JSON text.")


class Observation(_Shape):
    """What a call answered."""

    call_id: str | None
    text: str


class RowTurn(_Shape):
    """One step of a trajectory: by the agent, or said to it."""

    source: str = Field(examples=["agent"])
    task_step: str | None = Field(description="Of a task with steps: which.")
    text: str
    reasoning: str | None
    tool_calls: list[ToolCall]
    observations: list[Observation]
    weights_version: int | None = Field(description="Of the policy that spoke; null: no policy.")


class Tokens(_Shape):
    """A sequence as the model saw and sampled it."""

    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    loss_mask: list[int] = Field(description="1 on the policy's own tokens.")
    logprobs: list[float | None] | None = Field(
        description="Null as a whole, or on a token, where none was recorded."
    )


class Row(_Shape):
    """One trial. Columns of tokens are null where no ids were recorded, and where they make several
    sequences: those are the segments."""

    run_id: str = Field(examples=[RUN_ID])
    step: int
    task: str
    trial_id: str = Field(examples=[TRIAL_ID])
    group_id: str = Field(description="The same for all samples of a prompt.")
    sample: int
    state: TrialState
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


class RowPage(_Shape):
    """Rows in order of the text of their trial ids; ``next_cursor`` is null on the last page."""

    rows: list[Row]
    next_cursor: str | None


_EXAMPLE: dict[str, Any] = {
    "run_id": RUN_ID,
    "step": 0,
    "task": "hello",
    "trial_id": TRIAL_ID,
    "group_id": f"{RUN_ID}/s0-p1",
    "sample": 0,
    "state": "judged",
    "instruction": "Write hello to /app/hello.txt.",
    "prompt": [{"role": "user", "content": "Write hello to /app/hello.txt."}],
    "turns": [
        {
            "source": "agent",
            "task_step": None,
            "text": "",
            "reasoning": None,
            "tool_calls": [{"id": "c1", "name": "exec", "arguments": '{"command":"echo hello"}'}],
            "observations": [{"call_id": "c1", "text": "hello"}],
            "weights_version": 0,
        }
    ],
    "prompt_token_ids": [1, 2, 3],
    "completion_token_ids": [4, 5],
    "loss_mask": [1, 1],
    "logprobs": [-0.5, -0.25],
    "segments": None,
    "reward": 1.0,
    "reward_valid": True,
    "rewards": {"reward": 1.0},
    "scores": None,
    "error": None,
    "mode": "separate",
    "weights_version": 0,
}
EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    RowPage: {"rows": [_EXAMPLE], "next_cursor": None}
}
