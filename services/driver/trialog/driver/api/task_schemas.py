"""Shapes of the API's answers about uploaded tasks, with an example."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_DIGEST = "6d0f5a3c9b7e41d28a60c4f1e39b5d7782ac16e04f9d3b58c7e2016fa4d9b83e"


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TaskVerdict(_Shape):
    """Whether a task runs under default settings, with any agent and images."""

    task: str = Field(description="Its name.")
    runs: bool
    reason: str = Field(description="Why it does not run; empty where it does.")
    mend: str = Field(description="What to do about that.")
    warnings: list[str] = Field(description="What is ignored, or must be said by the run.")


class TaskArchive(_Shape):
    """Tasks that are kept. ``archive`` is the digest of what they are."""

    archive: str = Field(description="To be given as tasks.archive.")
    tasks: list[TaskVerdict] = Field(description="In the order in which a run plays them.")


EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    TaskArchive: {
        "archive": _DIGEST,
        "tasks": [
            {"task": "hello-file", "runs": True, "reason": "", "mend": "", "warnings": []},
            {
                "task": "fetch-page",
                "runs": False,
                "reason": "[environment].network_mode is public, and the run allows no network",
                "mend": "give the run network: public, or set [environment].network_mode to "
                "no-network",
                "warnings": ["[environment].skills_dir is ignored: no skills are given"],
            },
        ],
    }
}
