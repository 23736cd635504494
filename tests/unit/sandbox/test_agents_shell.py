"""What an agent has of its sandbox: its user, one deadline, and every call written down."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from trialog.sandbox.errors import (
    FileMissingError,
    FileRefusedError,
    SandboxGoneError,
    TrialTimedOutError,
)
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.provider import ExecResult
from trialog.sandbox.shell import Shell, Wrapped
from trialog.sandbox.trajectory.log import MAX_RESULT, Recorder


class Box:
    """Says of each command what it was told to."""

    def __init__(self, result: ExecResult | None = None) -> None:
        self.result = result or ExecResult(0, b"out\n")
        self.asked: list[tuple[str, Sequence[str], dict[str, Any]]] = []
        self.files: dict[str, tuple[bytes, int]] = {}

    async def exec(self, exec_id: str, argv: Sequence[str], **how: Any) -> ExecResult:
        self.asked.append((exec_id, argv, how))
        return self.result

    async def read(self, path: str, limit_bytes: int) -> bytes:
        if path not in self.files:
            raise FileMissingError(f"{path} does not exist")
        return self.files[path][0][:limit_bytes]

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        if path == "/dev/null":
            raise FileRefusedError(f"{path} is a device")
        self.files[path] = (data, mode)

    async def upload(self, source: Path, target: str) -> None:
        self.files[target] = (str(source).encode(), 0)


def shell(box: Box, timeout_s: float = 60.0, **more: Any) -> Shell:
    return Shell(cast("ImageSandbox", box), Recorder(lambda: 0.0), timeout_s, **more)


async def test_a_text_goes_to_the_shell_and_words_do_not() -> None:
    box = Box()
    sh = shell(box)
    await sh.exec("echo $HOME")
    await sh.exec(["echo", "$HOME"])
    assert [argv for _, argv, _ in box.asked] == [["sh", "-c", "echo $HOME"], ["echo", "$HOME"]]
    calls = [call for step in sh.log.steps for call in step.calls]
    assert [call.arguments for call in calls] == [
        {"command": "echo $HOME"},
        {"command": "echo '$HOME'"},
    ]


async def test_of_a_command_around_another_the_one_that_is_meant_is_written_down() -> None:
    box = Box()
    sh = shell(box)
    await sh.exec(Wrapped(["sh", "-c", "make > log; tail log"], "make"))
    assert [argv for _, argv, _ in box.asked] == [["sh", "-c", "make > log; tail log"]]
    assert sh.log.steps[0].calls[0].arguments == {"command": "make"}


async def test_exec_ids_are_those_of_the_step_in_the_order_of_the_calls() -> None:
    box = Box()
    sh = shell(box, step=2)
    for _ in range(3):
        await sh.exec("true")
    assert [exec_id for exec_id, _, _ in box.asked] == ["agent-2-1", "agent-2-2", "agent-2-3"]


async def test_commands_run_as_the_agents_user_in_its_folder_with_its_variables() -> None:
    box = Box()
    sh = shell(box, user="agent", workdir="/app", env={"A": "1", "B": "1"})
    await sh.exec("true", env={"B": "2"})
    await sh.exec("true", cwd="/tmp", stdin=b"in")
    first, second = (how for _, _, how in box.asked)
    assert (first["user"], first["cwd"], first["env"]) == ("agent", "/app", {"A": "1", "B": "2"})
    assert (second["cwd"], second["env"], second["stdin"]) == ("/tmp", {"A": "1", "B": "1"}, b"in")


async def test_values_of_variables_are_not_written_down() -> None:
    sh = shell(Box(), env={"OTHER": "s3cr3t-a"})
    await sh.exec("true", env={"TOKEN": "s3cr3t-b", "KEY": "s3cr3t-c"})
    (step,) = sh.log.steps
    assert step.calls[0].arguments["env"] == "KEY TOKEN"
    assert "s3cr3t" not in repr(sh.log.steps)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ExecResult(0, b"a\nb\n"), "a\nb"),
        (ExecResult(3, b"a\n", b"oh\n"), "a\noh"),
        (ExecResult(0), ""),
        (ExecResult(-9, b"a", limit="memory"), "a\n[killed: over the limit of memory]"),
        (ExecResult(0, b"a", truncated=True), "a\n[output above the limit was dropped]"),
        (ExecResult(0, b"\xff"), "�"),
    ],
)
async def test_what_a_command_came_to_is_written_down(result: ExecResult, told: str) -> None:
    sh = shell(Box(result))
    assert await sh.exec("x") == result
    (call,) = sh.log.steps[0].calls
    assert (call.result, call.exit_code) == (told, result.exit_code)


async def test_a_long_output_keeps_its_head_and_its_tail() -> None:
    sh = shell(Box(ExecResult(1, b"head" + b"x" * (1 << 20) + b"tail", b"y" * (1 << 20))))
    await sh.exec("x")
    told = sh.log.steps[0].calls[0].result or ""
    assert len(told) < MAX_RESULT + 200
    assert told.startswith("head")
    assert "left out" in told


async def test_a_command_has_no_more_than_the_try_has_left() -> None:
    box = Box()
    sh = shell(box, timeout_s=60)
    await sh.exec("x")
    await sh.exec("x", timeout_s=5)
    await sh.exec("x", timeout_s=500)
    times = [how["timeout_s"] for _, _, how in box.asked]
    assert times[1] == 5
    assert all(59 < each <= 60 for each in (times[0], times[2]))


async def test_a_command_over_the_try_ends_it_and_one_over_its_own_time_does_not() -> None:
    sh = shell(Box(ExecResult(-9, b"early", timed_out=True)))
    assert (await sh.exec("x", timeout_s=5)).timed_out
    for timeout_s in (None, 500):
        with pytest.raises(TrialTimedOutError, match="60 s") as caught:
            await sh.exec("x", timeout_s=timeout_s)
        assert caught.value.name == "AgentTimeoutError"
    told = [call.result for step in sh.log.steps for call in step.calls]
    assert told == ["early\n[killed: over its time]"] * 3


async def test_after_the_deadline_nothing_is_asked_of_the_sandbox() -> None:
    box = Box()
    sh = shell(box, timeout_s=0.01)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout_at(sh.deadline):
            await asyncio.Event().wait()
    for work in (sh.exec("x"), sh.read("/x"), sh.write("/x", b""), sh.upload(Path("/x"), "/x")):
        with pytest.raises(TrialTimedOutError):
            await work
    assert (box.asked, box.files) == ([], {})


async def test_a_closed_shell_refuses_and_writes_nothing_down() -> None:
    box = Box()
    sh = shell(box)
    sh.close()
    for work in (sh.exec("x"), sh.read("/x"), sh.write("/x", b""), sh.upload(Path("/x"), "/x")):
        with pytest.raises(SandboxGoneError):
            await work
    sh.log.message("agent", "too late")
    assert (box.asked, box.files, sh.log.steps, sh.log.n_turns) == ([], {}, [], 0)


async def test_files_are_calls_too() -> None:
    box = Box()
    sh = shell(box)
    sh.log.message("agent", "I write.")
    await sh.write("/app/a", b"one", 0o755)
    assert await sh.read("/app/a") == b"one"
    with pytest.raises(FileMissingError):
        await sh.read("/app/b")
    with pytest.raises(FileRefusedError):
        await sh.write("/dev/null", b"two")
    await sh.upload(Path("/host/folder"), "/app")
    (step,) = sh.log.steps
    assert [(call.name, call.arguments, call.result) for call in step.calls] == [
        ("write", {"path": "/app/a", "mode": "755", "content": "one"}, "3 bytes"),
        ("read", {"path": "/app/a"}, "one"),
        ("read", {"path": "/app/b"}, "/app/b does not exist"),
        ("write", {"path": "/dev/null", "mode": "644", "content": "two"}, "/dev/null is a device"),
        ("upload", {"target": "/app"}, "done"),
    ]
    assert "/host" not in repr(sh.log.steps)


async def test_without_an_env_of_its_own_a_command_has_the_trys(env: Mapping[str, str]) -> None:
    box = Box()
    await shell(box, env=env).exec("x")
    assert box.asked[0][2]["env"] == env


@pytest.fixture(params=[{}, {"A": "1"}])
def env(request: pytest.FixtureRequest) -> Mapping[str, str]:
    return request.param
