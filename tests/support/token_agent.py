"""An agent whose model's server tells token ids, as one that is trained would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trialog.sandbox.agent import Metrics, Try


class TokenAgent:
    """Says two things and writes the answer in between; the second prompt holds the first turn."""

    name, version = "tokens", "1"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    async def run(self, trial: Try) -> None:
        """Work on the task."""
        first = Metrics(3, 2, None, 0.5, (1, 2, 3), (4, 5), (-0.5, -0.25))
        trial.log.message("agent", "I write it.", metrics=first)
        await trial.sandbox.exec("echo 1 > answer.txt")
        second = Metrics(7, 1, 5, 0.25, (1, 2, 3, 4, 5, 6, 7), (8,), (-0.125,))
        trial.log.message("agent", "Done.", metrics=second)
