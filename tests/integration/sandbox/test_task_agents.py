"""Our agents for tasks run real programs: what these get, where their output goes, what is kept."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from support.loose_sandbox import LooseSandbox
from trialog.sandbox.agent import Agent, Try
from trialog.sandbox.agents.command import Command
from trialog.sandbox.agents.nop import Nop
from trialog.sandbox.agents.oracle import Oracle
from trialog.sandbox.errors import AgentError
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.shell import Shell
from trialog.sandbox.trajectory.log import Recorder
from trialog.sandbox.trying import Ended, let_try

INSTRUCTION = "Write «done» into /app/answer.txt.\n"


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[LooseSandbox]:
    made = LooseSandbox(tmp_path / "box")
    yield made
    await made.destroy()


class Tried:
    """A try that is over, and its log."""

    def __init__(self, ended: Ended, log: Recorder) -> None:
        self.ended, self.log = ended, log
        calls = [call for step in log.steps for call in step.calls]
        self.results = [call.result for call in calls]
        self.commands = [call.arguments["command"] for call in calls if call.name == "exec"]


async def try_it(
    agent: Agent,
    box: LooseSandbox,
    *,
    instruction: str = INSTRUCTION,
    solution: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
) -> Tried:
    shell = Shell(cast("ImageSandbox", box), Recorder(), timeout_s)
    trial = Try(
        "s0-p0-n0", instruction, None, shell, shell.log, 0, b"", timeout_s, solution, env or {}
    )
    return Tried(await let_try(agent, trial, shell), shell.log)


def solution_of(folder: Path, script: str, mode: int = 0o644) -> Path:
    folder.mkdir()
    (folder / "solve.sh").write_text(script)
    (folder / "solve.sh").chmod(mode)
    (folder / "data.txt").write_text("done\n")
    return folder


async def test_nop_leaves_everything_as_it_is(box: LooseSandbox) -> None:
    tried = await try_it(Nop({}), box)
    assert (tried.ended, box.execs, tried.log.n_turns) == (Ended(), [], 0)
    assert [path for path in box.root.rglob("*") if path.is_file()] == []


async def test_the_oracle_runs_the_solution_in_the_folder(
    box: LooseSandbox, tmp_path: Path
) -> None:
    script = (
        "#!/bin/sh\ncp /solution/data.txt answer.txt\necho $DEBIAN_FRONTEND $KEY\necho oh >&2\n"
    )
    solution = solution_of(tmp_path / "solution", script)
    tried = await try_it(Oracle({}), box, solution=solution, env={"KEY": "k"})
    assert tried.ended == Ended()
    assert box.text("/app/answer.txt") == "done\n"
    assert box.text("/logs/agent/oracle.txt") == "noninteractive k\noh\n"
    assert tried.results[-1] == "noninteractive k\noh"
    assert tried.commands == ["/solution/solve.sh"], "not what is around it"


async def test_a_solution_that_fails_is_over_and_says_why(
    box: LooseSandbox, tmp_path: Path
) -> None:
    solution = solution_of(tmp_path / "solution", "#!/bin/sh\necho half > answer.txt\nexit 7\n")
    tried = await try_it(Oracle({}), box, solution=solution)
    assert tried.ended == Ended("NonZeroAgentExitCodeError", "solve.sh ended with 7: ")
    assert box.text("/app/answer.txt") == "half\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs a bash")
async def test_a_solution_that_names_no_interpreter_is_a_script_of_bash(
    box: LooseSandbox, tmp_path: Path
) -> None:
    script = "words=(a done)\necho ${words[1]} > answer.txt\n"
    tried = await try_it(Oracle({}), box, solution=solution_of(tmp_path / "solution", script))
    assert (tried.ended, box.text("/app/answer.txt")) == (Ended(), "done\n")


async def test_a_solution_can_leave_a_service_behind(box: LooseSandbox, tmp_path: Path) -> None:
    """It holds the output open: the oracle waits for solve.sh, not for the end of that."""
    script = "#!/bin/sh\n(sleep 60; echo late) &\necho started\n"
    tried = await try_it(Oracle({}), box, solution=solution_of(tmp_path / "solution", script))
    assert (tried.ended, tried.results[-1]) == (Ended(), "started")


async def test_a_solution_over_its_time_was_an_agent_over_its_time(
    box: LooseSandbox, tmp_path: Path
) -> None:
    script = "#!/bin/sh\necho early > answer.txt\nsleep 60\n"
    solution = solution_of(tmp_path / "solution", script)
    tried = await try_it(Oracle({}), box, solution=solution, timeout_s=1.0)
    assert tried.ended.error == "AgentTimeoutError"
    assert box.text("/app/answer.txt") == "early\n"


@pytest.mark.parametrize("has_folder", [True, False])
async def test_a_task_without_a_solution_is_nothing_for_the_oracle(
    box: LooseSandbox, tmp_path: Path, has_folder: bool
) -> None:
    with pytest.raises(AgentError, match=r"no solution/solve\.sh"):
        await try_it(Oracle({}), box, solution=tmp_path if has_folder else None)


@pytest.mark.parametrize(
    "source",
    ["cat", "cat /logs/agent/instruction.md", 'printf %s "$TRIALOG_INSTRUCTION"'],
    ids=["stdin", "file", "variable"],
)
async def test_a_command_is_given_the_instruction_in_three_ways(
    box: LooseSandbox, source: str
) -> None:
    tried = await try_it(Command({"command": f"{source} > /app/answer.txt"}), box)
    assert tried.ended == Ended()
    assert box.text("/app/answer.txt") == INSTRUCTION


@pytest.mark.parametrize("instruction", ["é" * 100_000, "a\0b"], ids=["long", "NUL"])
async def test_what_fits_no_variable_comes_by_file_and_input(
    box: LooseSandbox, instruction: str
) -> None:
    command = 'cat > got; test -z "${TRIALOG_INSTRUCTION+set}"'
    tried = await try_it(Command({"command": command}), box, instruction=instruction)
    assert tried.ended == Ended()
    assert box.text("/app/got") == box.text("/logs/agent/instruction.md") == instruction


async def test_a_command_of_words_needs_no_quoting_and_has_its_variables(
    box: LooseSandbox,
) -> None:
    words = ["sh", "-c", 'echo "$1" $KEY', "name", "a  $b; c"]
    tried = await try_it(Command({"command": words, "env": {"KEY": "mine"}}), box, env={"KEY": "t"})
    assert box.text("/logs/agent/stdout.txt") == "a  $b; c mine\n"
    assert tried.results[-1] == "a  $b; c mine"


async def test_output_is_kept_whole_inside_and_bounded_in_the_trajectory(
    box: LooseSandbox,
) -> None:
    command = "yes 0123456789 | head -c 3000000; echo the end; echo wrong >&2; exit 4"
    tried = await try_it(Command({"command": command}), box)
    assert tried.ended == Ended("NonZeroAgentExitCodeError", "the command ended with 4: wrong")
    assert len(box.text("/logs/agent/stdout.txt")) == 3_000_000 + len("the end\n")
    assert box.text("/logs/agent/stderr.txt") == "wrong\n"
    told = tried.results[-1] or ""
    assert len(told) < 40_000
    assert told.endswith("the end\nwrong")


async def test_a_command_that_is_not_there(box: LooseSandbox) -> None:
    tried = await try_it(Command({"command": ["no-such-program"]}), box)
    assert tried.ended.error == "NonZeroAgentExitCodeError"
    assert tried.ended.message.startswith("the command ended with 127")


async def test_each_step_has_its_own_output_and_exec_ids(box: LooseSandbox) -> None:
    for text in ("first", "second"):
        options: dict[str, Any] = {"command": f"echo {text}"}
        shell = Shell(cast("ImageSandbox", box), Recorder(), 30.0, step=0 if text == "first" else 1)
        trial = Try("s0-p0-n0", text, text, shell, shell.log, 0, b"", 30.0)
        assert await let_try(Command(options), trial, shell) == Ended()
        assert box.text("/logs/agent/stdout.txt") == f"{text}\n"
    assert [exec_id for exec_id, _ in box.execs] == ["agent-0-1", "agent-1-1"]
