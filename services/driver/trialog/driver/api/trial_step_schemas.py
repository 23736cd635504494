"""Shape of one step of a task, as it went in a trial."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TrialStep(BaseModel):
    """One step of a task with several."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(examples=["build"])
    played: bool = Field(description="Whether the agent came to it.")
    n_turns: int | None
    rewards: dict[str, float] | None = Field(description="Null where its verifier gave none.")
    error: str | None = Field(
        description="The class of how the agent's try at it ended, when not by itself."
    )
    message: str | None
    min_reward: float | dict[str, float] | None = Field(description="The gate to the next step.")
    stopped: bool = Field(description="Whether that gate ended the trial.")
