"""Agents by name, and which options those of ours take: known before anything runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from trialog.proto.spelling import hint

REFERENCE_AGENTS = frozenset({"policy", "noop"})
TASK_AGENTS = "oracle, nop, command or import:MODULE:CLASS"
PATTERN = r"^(policy|noop|oracle|nop|command|import:[A-Za-z_][\w.]*:[A-Za-z_]\w*)$"

_NAMES = ("policy", "noop", "oracle", "nop", "command")
_OPTIONS: Mapping[str, tuple[str, ...]] = {"oracle": (), "nop": (), "command": ("command", "env")}


def check_name(agent: str) -> str:
    """Return an agent's name. Raises ValueError where there can be none of it."""
    if re.fullmatch(PATTERN, agent):
        return agent
    choices = f"policy and noop play the reference world; tasks take {TASK_AGENTS}"
    raise ValueError(f"{agent[:100]!r} is no agent{hint(agent, _NAMES)}; {choices}")


def check_options(agent: str, options: Mapping[str, Any]) -> None:
    """Raise ValueError for options that one of our own agents does not take.

    The message begins with the option. What an imported class takes, only it knows.
    """
    known = _OPTIONS.get(agent)
    if known is None:
        return
    for option in options:
        if option not in known:
            has = f"it has {' and '.join(known)}" if known else "it has none"
            raise ValueError(f"{option} is no option of {agent}{hint(option, known)}; {has}")
    if agent == "command":
        _check_command(options)
        _check_env(options.get("env"))


def _check_command(options: Mapping[str, Any]) -> None:
    if "command" not in options:
        raise ValueError("command says which program agent command runs, and is not given")
    given = options["command"]
    if isinstance(given, str) and given.strip():
        return _check_clean("command", given)
    if isinstance(given, list | tuple) and given:
        words = list(cast("list[Any]", given))
        if all(isinstance(word, str) for word in words) and words[0]:
            return _check_clean("command", *words)
    # `command: true` is a program to whom writes it, and no text to YAML.
    quote = ": quote it" if isinstance(given, bool | int | float) else ""
    what = "command is to be a text for the shell, or a list of texts: program, words"
    raise ValueError(f"{what}{quote}")


def _check_env(given: Any) -> None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        pairs = cast("Mapping[Any, Any]", given)
        named = all(isinstance(name, str) and name and "=" not in name for name in pairs)
        if named and all(isinstance(value, str) for value in pairs.values()):
            return _check_clean("env", *pairs, *pairs.values())
    raise ValueError("env is to be variables by name, each a text")


def _check_clean(option: str, *texts: str) -> None:
    if any("\0" in text for text in texts):
        raise ValueError(f"{option} has a NUL, which no program can be given")
