"""Turns of an agent on a task, as a person reads them."""

from __future__ import annotations

from typing import Any

import pytest
from trialog.cli.turns import are_of_a_task, print_turns

TURNS: list[dict[str, Any]] = [
    {"source": "user", "message": "Make a file.\n\nNow."},
    {
        "source": "agent",
        "reasoning": "Easy.",
        "calls": [
            {
                "name": "exec",
                "arguments": {"command": "echo hi > a\ncat a", "cwd": "/app"},
                "result": "hi",
            },
            {"name": "exec", "arguments": {"command": "exit 7"}, "exit_code": 7, "result": ""},
            {"name": "write", "arguments": {"path": "/b", "content": "x"}, "result": "1 bytes"},
        ],
    },
]


def test_each_turn_says_who_and_what_came_back(capsys: pytest.CaptureFixture[str]) -> None:
    print_turns(TURNS)
    assert capsys.readouterr().out == (
        "\n0  user\n    Make a file.\n\n    Now.\n"
        "\n1  agent\n    Easy.\n"
        "    exec cwd=/app\n    $ echo hi > a\n    $ cat a\n    hi\n"
        "    exec  -> exit code 7\n    $ exit 7\n"
        "    write path=/b\n    | x\n    1 bytes\n"
    )


def test_turns_at_a_step_stand_below_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    steps = ("build", "build", None, "serve")
    print_turns([{"source": "agent"} | ({"step": step} if step else {}) for step in steps])
    heads = [line for line in capsys.readouterr().out.splitlines() if line]
    assert heads == [
        "== step build", "0  agent", "1  agent", "2  agent", "== step serve", "3  agent",
    ]  # fmt: skip


def test_of_a_long_result_the_end_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    result = "\n".join(str(number) for number in range(100))
    print_turns([{"source": "agent", "calls": [{"name": "exec", "result": result}]}])
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == "    ... 70 lines more: -o json has them"
    assert lines[-1] == "    99" and len(lines) == 34


def test_what_an_agent_wrote_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    print_turns([{"source": "agent\x1b[2J", "message": "a\x1b]0;x\x07"}])
    assert "\x1b" not in capsys.readouterr().out


def test_the_reference_agents_turns_are_others() -> None:
    assert are_of_a_task(TURNS)
    assert not are_of_a_task([{"doc": 1, "found": False}]) and not are_of_a_task([])
