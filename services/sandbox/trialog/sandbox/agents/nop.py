"""An agent that does nothing: what a task is worth before anybody has worked on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trialog.proto.agents import check_options
from trialog.sandbox.agent import Try


class Nop:
    """Leaves the sandbox as it is."""

    name = "nop"
    version = "1"

    def __init__(self, options: Mapping[str, Any]) -> None:
        check_options(self.name, options)

    async def run(self, trial: Try) -> None:
        """Do nothing."""
