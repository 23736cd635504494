"""Shapes of how tasks went, for the API's description."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trialog.driver.api.schemas import RUN_ID, RunState


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Counts(_Shape):
    trials: int
    scored: int = Field(description="With a verdict.")
    unscored: int = Field(description="Ended without one: no zero, and in no mean.")
    open: int = Field(description="Not ended yet.")
    mean_reward: float | None = Field(description="Null when nothing was scored.")
    rewards: dict[str, float | None] = Field(description="Of each of the verifier's rewards.")
    errors: dict[str, int] = Field(
        description="By class; a trial whose agent ran out of time is among them and scored."
    )
    modes: dict[str, int] = Field(description="In what was graded.")


class TaskResult(_Counts):
    """What became of the trials of one task."""

    task: str


class TaskTotals(_Counts):
    """Counts are over trials; means are over the tasks with a mean, each weighing the same."""

    tasks: int
    tasks_scored: int


class TaskResults(_Shape):
    """All tasks of a run."""

    run_id: str = Field(examples=[RUN_ID])
    state: RunState
    totals: TaskTotals
    tasks: list[TaskResult]


_COUNTS: dict[str, Any] = {
    "trials": 4,
    "scored": 3,
    "unscored": 1,
    "open": 0,
    "mean_reward": 0.5,
    "rewards": {"reward": 0.5},
    "errors": {"RewardFileNotFoundError": 1},
    "modes": {"separate": 3},
}
EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    TaskResults: {
        "run_id": RUN_ID,
        "state": "completed",
        "totals": {"tasks": 1, "tasks_scored": 1} | _COUNTS,
        "tasks": [{"task": "hello"} | _COUNTS],
    }
}
