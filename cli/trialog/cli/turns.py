"""Turns of an agent on a task, as text to read: one below the other, nothing cut inside a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trialog.cli import output

_INDENT = "    "
_MOST_LINES = 30


def are_of_a_task(turns: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether the turns are messages and calls of tools, not readings of documents."""
    return any("source" in turn for turn in turns)


def print_turns(turns: Iterable[Mapping[str, Any]]) -> None:
    """Write each turn: who, what was said, each call, and what came back of it.

    Turns at a step of a task stand below its name.
    """
    step = None
    for number, turn in enumerate(turns):
        if turn.get("step", step) != step:
            step = turn["step"]
            print(f"\n== step {output.visible(step)}")
        print(f"\n{number}  {output.visible(turn.get('source', ''))}")
        for line in _lines_of(turn):
            print(f"{_INDENT}{line}".rstrip())


def _lines_of(turn: Mapping[str, Any]) -> Iterator[str]:
    for name in ("reasoning", "message"):
        yield from _text(turn.get(name))
    for call in turn.get("calls") or ():
        code = call.get("exit_code")
        arguments: Mapping[str, Any] = call.get("arguments") or {}
        command = arguments.get("command")
        rest = ", ".join(
            f"{key}={output.visible(value)}"
            for key, value in arguments.items()
            if key not in ("command", "content")
        )
        ended = "" if code in (None, 0) else f"  -> exit code {code}"
        yield f"{output.visible(call.get('name', ''))} {rest}".rstrip() + ended
        for text, mark in (
            (command, "$ "),
            (arguments.get("content"), "| "),
            (call.get("result"), ""),
        ):
            yield from (f"{mark}{line}" for line in _text(text))


def _text(value: Any) -> Iterator[str]:
    """Yield a text's lines, the last ones of a long one; -o json has all of it."""
    if not value:
        return
    lines = str(value).splitlines()
    if len(lines) > _MOST_LINES:
        yield f"... {len(lines) - _MOST_LINES} lines more: -o json has them"
    for line in lines[-_MOST_LINES:]:
        yield output.visible(line, keep="\t")
