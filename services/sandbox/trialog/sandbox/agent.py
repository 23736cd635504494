"""What an agent on tasks is: a small protocol for our own and for yours.

``agent: import:MODULE:CLASS`` loads a class that a worker can import and that satisfies ``Agent``;
it is made anew for each try with the run's ``agent_options``. docs/agents.md has an example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trialog.sandbox.provider import ExecResult


class AgentSandbox(Protocol):
    """The sandbox as an agent has it: its own user, its time limit, nothing of the verifier."""

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float | None = None,
    ) -> ExecResult:
        """Run a command; a text goes to ``sh -c``. Each call is recorded as a tool call."""
        ...

    async def read(self, path: str, limit_bytes: int = 1 << 20) -> bytes:
        """Return a file's bytes. Raises FileMissingError, FileRefusedError."""
        ...

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file in place. Raises FileRefusedError."""
        ...

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host folder's content into a folder."""
        ...


@dataclass(frozen=True, slots=True)
class Metrics:
    """What one reply of a model took, as ATIF has it; token ids and log-probabilities where the
    model's server gave them, in the order of the tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: Sequence[int] | None = None
    completion_token_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None


class TrajectoryLog(Protocol):
    """Where an agent says what it saw and did; the sandbox's calls come in by themselves."""

    def message(
        self,
        source: str,
        text: str,
        *,
        reasoning: str | None = None,
        metrics: Metrics | None = None,
        model_name: str | None = None,
    ) -> None:
        """Add a step by ``system``, ``user`` or ``agent``. Tool calls that follow are its own."""
        ...


@dataclass(frozen=True, slots=True)
class Try:
    """One try at a task, or at one step of it.

    ``solution`` is the folder with the task's solution, for the oracle alone; ``seed`` is the
    trial's own and the same in every attempt; ``env`` are variables the task's solution asks for.
    """

    trial_id: str
    instruction: str
    step: str | None
    sandbox: AgentSandbox
    log: TrajectoryLog
    seed: int
    weights: bytes
    timeout_s: float | None
    solution: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])


class Agent(Protocol):
    """An agent. ``name`` and ``version`` go into the trajectory. Constructed with the options."""

    name: str
    version: str

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Raises ValueError that names the option that cannot be meant."""
        ...

    async def run(self, trial: Try) -> None:
        """Work on the task until done. The time limit is the caller's: it cancels.

        Raises CommandFailedError (its program exited non-zero: graded all the same), AgentError.
        """
        ...
