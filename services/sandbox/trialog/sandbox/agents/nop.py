"""An agent that does nothing: what a task is worth before anybody has worked on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trialog.sandbox.agent import Try


class Nop:
    """Leaves the sandbox as it is."""

    name = "nop"
    version = "1"

    def __init__(self, options: Mapping[str, Any]) -> None:
        if options:
            raise ValueError(f"nop has no options, and was given {', '.join(sorted(options))}")

    async def run(self, trial: Try) -> None:
        """Do nothing."""
