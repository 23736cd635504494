"""How a try ends: by itself, out of time, with a program that failed, or broken."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import pytest
import uvloop
from trialog.sandbox import trying
from trialog.sandbox.agent import Try
from trialog.sandbox.errors import (
    AgentError,
    CommandFailedError,
    SandboxGoneError,
    TrialTimedOutError,
)
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.provider import ExecResult
from trialog.sandbox.shell import Shell
from trialog.sandbox.traces import trace_of
from trialog.sandbox.trajectory.log import Recorder
from trialog.sandbox.trying import Ended, let_try

LONG_S = 60.0
Work = Callable[[Try], Awaitable[None]]


class Does:
    """An agent that does what a function does."""

    name, version = "does", "1"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._work: Work = options["work"]

    async def run(self, trial: Try) -> None:
        await self._work(trial)


class Box:
    """A sandbox whose commands take until they are told to end, at most their time."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.execs = 0

    async def exec(self, exec_id: str, argv: Any, *, timeout_s: float, **_: Any) -> ExecResult:
        self.execs += 1
        self.begun.set()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.Event().wait()
        except TimeoutError:
            return ExecResult(-9, b"early", timed_out=True)
        raise AssertionError("nothing else ends it")


def trial_of(box: Box, timeout_s: float = LONG_S) -> tuple[Try, Shell]:
    shell = Shell(cast("ImageSandbox", box), Recorder(lambda: 0.0), timeout_s)
    return Try("s0-p0-n0", "Do it.", None, shell, shell.log, 7, b"", timeout_s), shell


async def tried(work: Work, timeout_s: float = LONG_S) -> Ended:
    trial, shell = trial_of(Box(), timeout_s)
    return await let_try(Does({"work": work}), trial, shell)


@pytest.fixture(autouse=True)
def end_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "_END_S", 0.05)


async def test_the_instruction_is_the_first_step_and_no_turn() -> None:
    trial, shell = trial_of(Box())

    async def work(trial: Try) -> None:
        trial.log.message("agent", "Done.")

    assert await let_try(Does({"work": work}), trial, shell) == Ended()
    assert [(step.source, step.text) for step in shell.log.steps] == [
        ("user", "Do it."),
        ("agent", "Done."),
    ]
    assert shell.log.n_turns == 1


async def test_a_program_that_failed_is_no_failure_of_the_try() -> None:
    async def work(_: Try) -> None:
        raise CommandFailedError("solve.sh ended with 3")

    assert await tried(work) == Ended("NonZeroAgentExitCodeError", "solve.sh ended with 3")


async def test_a_command_that_never_ends_is_killed_and_tells_what_it_said() -> None:
    trial, shell = trial_of(Box(), 0.05)

    async def work(trial: Try) -> None:
        await trial.sandbox.exec("sleep infinity")

    ended = await let_try(Does({"work": work}), trial, shell)
    assert (ended.error, ended.message) == ("AgentTimeoutError", "the agent took more than 0.05 s")
    assert shell.log.steps[-1].calls[0].result == "early\n[killed: over its time]"


async def test_an_agent_that_never_ends_without_the_sandbox_is_stopped_too() -> None:
    async def work(_: Try) -> None:
        await asyncio.Event().wait()

    assert (await tried(work, 0.05)).error == "AgentTimeoutError"


async def test_an_agent_that_hides_its_time_out_has_run_out_of_time() -> None:
    async def swallows(trial: Try) -> None:
        try:
            await trial.sandbox.exec("sleep infinity")
        except TrialTimedOutError:
            return

    async def renames(trial: Try) -> None:
        try:
            await trial.sandbox.exec("sleep infinity")
        except TrialTimedOutError as error:
            raise RuntimeError("the tool is broken") from error

    for work in (swallows, renames):
        assert (await tried(work, 0.05)).error == "AgentTimeoutError"


async def test_an_agent_that_will_not_be_stopped_is_left_without_a_sandbox() -> None:
    box = Box()
    trial, shell = trial_of(box, 0.02)
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
    stubborn, release = asyncio.Event(), asyncio.Event()
    refused = asyncio.Event()

    async def work(trial: Try) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                stubborn.set()
        try:
            await trial.sandbox.exec("touch /app/late")
        except SandboxGoneError:
            refused.set()
            raise

    ended = await let_try(Does({"work": work}), trial, shell)
    assert ended.error == "AgentTimeoutError"
    assert stubborn.is_set()
    release.set()
    await refused.wait()
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
    del others
    gc.collect()
    assert (box.execs, complaints) == (0, []), "it is not even heard of again"


async def test_what_an_agents_own_code_raises_is_its_failure_by_name() -> None:
    async def work(_: Try) -> None:
        raise KeyError("x" * 10_000)

    with pytest.raises(AgentError) as caught:
        await tried(work)
    assert (caught.value.name, caught.value.failure) == ("KeyError", "agent")
    assert str(caught.value).startswith("'xxx"), "its name stands beside it"
    assert len(str(caught.value)) < 3_000


async def test_an_agent_that_cancels_itself_has_failed() -> None:
    async def work(_: Try) -> None:
        raise asyncio.CancelledError

    with pytest.raises(AgentError) as caught:
        await tried(work)
    assert caught.value.name == "CancelledError"


async def test_a_message_that_no_trajectory_can_hold_fails_the_try() -> None:
    async def work(trial: Try) -> None:
        trial.log.message("robot", "beep")

    with pytest.raises(AgentError, match="'robot' is none of system, user, agent"):
        await tried(work)


async def test_a_lost_sandbox_is_no_fault_of_the_agent() -> None:
    async def work(_: Try) -> None:
        raise SandboxGoneError("it died")

    with pytest.raises(SandboxGoneError, match="it died"):
        await tried(work)


async def test_a_worker_that_stops_takes_the_agent_along() -> None:
    box = Box()
    trial, shell = trial_of(box)
    ended: list[str] = []

    async def work(trial: Try) -> None:
        try:
            await trial.sandbox.exec("sleep infinity")
        finally:
            ended.append("stopped")

    running = asyncio.create_task(let_try(Does({"work": work}), trial, shell))
    await box.begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == ["stopped"]
    with pytest.raises(SandboxGoneError):
        await shell.exec("x")


class Odd(BaseException):
    """Neither an Exception nor one that a loop knows."""


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, Odd, GeneratorExit])
@pytest.mark.parametrize("where", ["itself", "task", "group", "gather"])
async def test_what_would_end_a_process_ends_the_try(kind: type[BaseException], where: str) -> None:
    async def breaks() -> None:
        await asyncio.sleep(0)
        raise kind("bye")

    async def work(_: Try) -> None:
        match where:
            case "itself":
                await breaks()
            case "task":
                await asyncio.create_task(breaks())
            case "gather":
                await asyncio.gather(breaks())
            case _:
                async with asyncio.TaskGroup() as group:
                    group.create_task(breaks())

    with pytest.raises(AgentError) as caught:
        await tried(work)
    cause = caught.value.__cause__
    if where == "group" and isinstance(cause, BaseExceptionGroup):
        (inner,) = cause.exceptions
        cause = inner.__cause__ or inner
    else:
        assert caught.value.name == kind.__name__
    assert isinstance(cause, kind)
    assert caught.value.failure == "agent"
    assert "in breaks\n" in trace_of(caught.value)


async def test_a_task_that_nobody_waits_for_ends_no_process() -> None:
    async def breaks() -> None:
        raise SystemExit(3)

    async def work(_: Try) -> None:
        task = asyncio.create_task(breaks())
        await asyncio.wait({task})

    assert await tried(work) == Ended()


async def test_tasks_of_ours_are_not_guarded() -> None:
    """Ours may end this process: what is caught is an agent's alone."""

    async def work(_: Try) -> None:
        pass

    async def runs() -> str:
        current = asyncio.current_task()
        assert current is not None
        return str(current.get_coro())

    await tried(work)
    assert "runs" in await asyncio.create_task(runs())


def test_the_loop_of_a_worker_goes_on() -> None:
    """A worker's loop is uvloop, which starts tasks in its own way."""

    async def breaks(_: Try) -> None:
        await asyncio.gather(asyncio.create_task(exits()))

    async def exits() -> None:
        raise SystemExit(3)

    async def body() -> str:
        with pytest.raises(AgentError) as caught:
            await tried(breaks)
        return caught.value.name

    assert uvloop.run(body()) == "SystemExit"
