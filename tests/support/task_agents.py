"""An agent for tests: it runs the script of its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trialog.sandbox.agent import Try


class Script:
    """Runs ``script`` in the sandbox, as a worker's own module could."""

    name = "script"
    version = "1"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._script = str(options.get("script", "true"))

    async def run(self, trial: Try) -> None:
        """Run it."""
        await trial.sandbox.exec(self._script)
