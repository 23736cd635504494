"""Agents of somebody's own, as a worker imports them: ``import:support.own_agents:CLASS``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from trialog.sandbox.agent import Metrics, Try
from trialog.sandbox.errors import CommandFailedError


class Writes:
    """Writes what its options say, and tells of the model's reply that made it do so."""

    name, version = "writes", "7"

    def __init__(self, options: Mapping[str, Any]) -> None:
        if not isinstance(options.get("answer"), str):
            raise ValueError("answer is to be a text")
        self._answer: str = options["answer"]

    async def run(self, trial: Try) -> None:
        """Answer, and look at what was written and who wrote it."""
        metrics = Metrics(
            prompt_tokens=3,
            completion_tokens=2,
            prompt_token_ids=[1, 2, 3],
            completion_token_ids=[4, 5],
            logprobs=[-0.5, -0.25],
        )
        trial.log.message("agent", "I write the answer.", metrics=metrics, model_name="m")
        await trial.sandbox.exec("cat > answer.txt", stdin=self._answer.encode())
        trial.log.message("agent", "I look at it.")
        await trial.sandbox.exec("pwd; id -un; cat answer.txt", env={"TOKEN": "s3cr3t"})


class Waits:
    """Leaves a process and an answer, and then waits for something that never comes."""

    name, version = "waits", "1"

    def __init__(self, options: Mapping[str, Any]) -> None:
        del options

    async def run(self, trial: Try) -> None:
        """Never end."""
        await trial.sandbox.exec("echo 1 > answer.txt; (while :; do echo 0 > late; done) &")
        await asyncio.Event().wait()


class Breaks:
    """Raises what its options name."""

    name, version = "breaks", "1"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._gives_up = bool(options.get("gives_up"))

    async def run(self, trial: Try) -> None:
        """Answer first: a try that gave up is graded, one that broke is not."""
        await trial.sandbox.write("/app/answer.txt", b"1\n")
        if self._gives_up:
            raise CommandFailedError("my program ended with 9")
        raise LookupError("no such tool")
