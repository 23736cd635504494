"""The reference agent: reads documents in an order drawn from the policy until the secret is found.

Its draws and their order are the rule that makes a trial the same on any machine, in any order of
completion and after any crash. Time never enters a trajectory.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trialog.proto.policy import N_DOCS
from trialog.proto.seeds import generator
from trialog.sandbox.agents import commands
from trialog.sandbox.errors import (
    CommandFailedError,
    InjectedFault,
    TrialTimedOutError,
)
from trialog.sandbox.provider import ExecResult, Sandbox
from trialog.sandbox.snapshot import Snapshot
from trialog.sandbox.worlds.reference import doc_path, secret_in

ANSWER = "answer.txt"
SCRATCH = "scratch.tmp"
SCRATCH_RATE = 0.3
_MIN_TIMEOUT_S = 0.001


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    """One attempt of a trial.

    ``attempt`` counts the injected failures recorded before it; ``prior`` holds the policy's
    weight of each document of this world; ``timeout_s`` is the whole try's, in seconds from its
    start. The last three are faults to inject.
    """

    trial_id: str
    attempt: int
    prior: Sequence[float]
    max_turns: int = 6
    tool_latency_s: float = 0.2
    run_seed: int | None = None
    timeout_s: float = 300.0
    flaky_trial_rate: float = 0.0
    straggler_s: float = 0.0
    hang: bool = False
    always_fail: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One document read, and whether the secret was in it."""

    doc: int
    found: bool


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What the agent did and answered; ``files`` has the answer first, then the rest sorted."""

    turns: tuple[Turn, ...]
    answer: str | None
    files: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return ``{turns: [{doc, found}], answer, files}``, the trajectory's meaning."""
        return {
            "turns": [{"doc": turn.doc, "found": turn.found} for turn in self.turns],
            "answer": self.answer,
            "files": list(self.files),
        }


async def run(sandbox: Sandbox, trial: PolicyTrial) -> tuple[Trajectory, Snapshot]:
    """Let the agent try, then kill what it left running and return its trajectory and files.

    Raises InjectedFault, TrialTimedOutError, CommandFailedError (a command it needs failed), or
    what the sandbox raises.
    """
    draw = generator("trial", trial.trial_id, run_seed=trial.run_seed)
    _maybe_fail(draw, trial)
    shell = _Shell(sandbox, trial.timeout_s)
    if trial.hang:
        await shell.run("hang", commands.never_end())
    if trial.straggler_s > 0:
        await shell.run("straggler", commands.wait(trial.straggler_s))
    turns, answer = await _search(shell, _reading_order(draw, trial.prior), trial)
    await shell.run("answer", commands.write(ANSWER), stdin=(answer or "").encode())
    if draw.random() < SCRATCH_RATE:
        await shell.run("scratch", commands.write(SCRATCH), stdin=b"notes\n")
    snapshot = await sandbox.snapshot()
    return Trajectory(tuple(turns), answer, _listed(snapshot)), snapshot


def _maybe_fail(draw: random.Random, trial: PolicyTrial) -> None:
    if trial.attempt == 0 and draw.random() < trial.flaky_trial_rate:
        raise InjectedFault(f"{trial.trial_id} drew a flaky first attempt")
    if trial.always_fail:
        raise InjectedFault(f"{trial.trial_id} is told to fail every attempt")


def _reading_order(draw: random.Random, prior: Sequence[float]) -> list[int]:
    """Draw all documents without replacement, weighted by the prior."""
    remaining = list(range(N_DOCS))
    order: list[int] = []
    while remaining:
        doc = draw.choices(remaining, weights=[prior[i] for i in remaining], k=1)[0]
        remaining.remove(doc)
        order.append(doc)
    return order


async def _search(
    shell: _Shell, order: list[int], trial: PolicyTrial
) -> tuple[list[Turn], str | None]:
    turns: list[Turn] = []
    for number, doc in enumerate(order[: trial.max_turns]):
        argv = commands.read(doc_path(doc), trial.tool_latency_s)
        seen = await shell.run(f"turn-{number}", argv)
        answer = secret_in(seen.stdout.decode("utf-8", "replace"))
        turns.append(Turn(doc, answer is not None))
        if answer is not None:
            return turns, answer
    return turns, None


def _listed(snapshot: Snapshot) -> tuple[str, ...]:
    written = snapshot.files_written()
    return (ANSWER, *(path for path in written if path != ANSWER))


class _Shell:
    """Runs the agent's commands under one deadline; exec ids are stable across a re-attach."""

    def __init__(self, sandbox: Sandbox, timeout_s: float) -> None:
        self._sandbox = sandbox
        self._timeout_s = timeout_s
        self._deadline = asyncio.get_running_loop().time() + timeout_s

    async def run(self, exec_id: str, argv: list[str], stdin: bytes = b"") -> ExecResult:
        left_s = max(self._deadline - asyncio.get_running_loop().time(), _MIN_TIMEOUT_S)
        result = await self._sandbox.exec(exec_id, argv, stdin=stdin, timeout_s=left_s)
        if result.timed_out:
            raise TrialTimedOutError(f"{exec_id} was killed after {self._timeout_s:g} s of trial")
        if result.exit_code != 0:
            said = result.stderr[-200:].decode("utf-8", "replace").strip()
            raise CommandFailedError(f"{exec_id} ended with {result.exit_code}: {said}")
        return result
