"""One try of an agent, to its end: done, out of time, given up, or broken."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from typing import Any

from trialog.sandbox.agent import Agent, Try
from trialog.sandbox.errors import (
    AgentError,
    CommandFailedError,
    SandboxError,
    TrialTimedOutError,
)
from trialog.sandbox.shell import Shell
from trialog.sandbox.trajectory.clip import clip

# A command that is killed at the deadline tells what it said until then: it is waited for so long.
_END_S = 2.0
_REASON = 2_000
_is_theirs = contextvars.ContextVar("_is_theirs", default=False)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a try ended that is graded. ``error`` is "" when it ended by itself, else
    AgentTimeoutError (its processes are still to be killed) or NonZeroAgentExitCodeError."""

    error: str = ""
    message: str = ""


async def let_try(agent: Agent, trial: Try, shell: Shell) -> Ended:
    """Let an agent work until it is done or its time is over, then close its shell.

    Raises AgentError for every other failure of the agent, with the class of what its own code
    raised as the name, and SandboxError: such a try is not graded.
    """
    loop = asyncio.get_running_loop()
    shell.log.message("user", trial.instruction)
    work = _begun(loop, agent, trial)
    try:
        await asyncio.wait({work}, timeout=max(0.0, shell.deadline - loop.time()) + _END_S)
        is_late = loop.time() >= shell.deadline
    finally:
        shell.close()
        await _stop(work)
    error = _raised(work)
    if isinstance(error, SandboxError) and not is_late:
        raise error
    if is_late or isinstance(error, TrialTimedOutError):
        return Ended(TrialTimedOutError.name, f"the agent took more than {shell.timeout_s:g} s")
    if isinstance(error, CommandFailedError):
        return Ended(error.name, clip(str(error), _REASON))
    if error is not None:
        raise error if isinstance(error, AgentError) else _its_own(error)
    return Ended()


def _begun(loop: asyncio.AbstractEventLoop, agent: Agent, trial: Try) -> asyncio.Task[None]:
    """Start an agent's work. What it raises ends its own tasks, and never this process."""
    loop.set_task_factory(_task)
    theirs = contextvars.copy_context()
    theirs.run(_is_theirs.set, True)
    return loop.create_task(agent.run(trial), context=theirs)


def _task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    **options: Any,
) -> asyncio.Task[Any]:
    """Make a task as the loop itself does, guarded where an agent's code asks for it.

    A loop hands SystemExit and KeyboardInterrupt of any task on to whoever runs the loop.
    """
    context: contextvars.Context | None = options.get("context")
    is_theirs = _is_theirs.get() if context is None else context.get(_is_theirs, False)
    return asyncio.Task(_guarded(work) if is_theirs else work, loop=loop, **options)


async def _guarded(work: Any) -> Any:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise _its_own(error) from error


async def _stop(work: asyncio.Task[None]) -> None:
    """Cancel what still runs. Code that will not end is left behind: its shell is closed."""
    if not work.done():
        work.cancel()
        await asyncio.wait({work}, timeout=_END_S)
    if not work.done():
        work.add_done_callback(_raised)


def _raised(work: asyncio.Task[None]) -> BaseException | None:
    """Return what ended the work; None too while it goes on."""
    if not work.done():
        return None
    return asyncio.CancelledError() if work.cancelled() else work.exception()


def _its_own(error: BaseException) -> AgentError:
    """The name stands beside the message, not in it: what shows both says it once."""
    wrapped = AgentError(clip(str(error), _REASON) or "(it says no more)")
    wrapped.name = type(error).__name__
    wrapped.__cause__ = error
    return wrapped
