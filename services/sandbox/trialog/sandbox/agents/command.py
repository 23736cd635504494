"""Any program inside the sandbox as an agent: it is given the instruction and left to work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from trialog.sandbox.agent import Try
from trialog.sandbox.errors import CommandFailedError

INSTRUCTION = "/logs/agent/instruction.md"
STDOUT, STDERR = "/logs/agent/stdout.txt", "/logs/agent/stderr.txt"
VARIABLE = "TRIALOG_INSTRUCTION"
# Linux takes 128 KiB in one variable, its name included.
_VARIABLE_BYTES = 100_000

_RUN = f"""\
"$@" > {STDOUT} 2> {STDERR} < {INSTRUCTION}
code=$?
tail -c 16384 {STDOUT}
tail -c 16384 {STDERR} >&2
exit $code
"""


class Command:
    """Runs the program of its options: ``command`` (a text for the shell, or a list), ``env``."""

    name = "command"
    version = "1"

    def __init__(self, options: Mapping[str, Any]) -> None:
        unknown = sorted(set(options) - {"command", "env"})
        if unknown:
            raise ValueError(f"{unknown[0]} is no option of command: it has command and env")
        self._argv = _argv(options.get("command"))
        self._env = _env(options.get("env"))

    async def run(self, trial: Try) -> None:
        """Run the program. Raises CommandFailedError when it exits non-zero."""
        trial.log.message("agent", "I run the program that I was given.")
        instruction = trial.instruction.encode("utf-8", "surrogateescape")
        await trial.sandbox.write(INSTRUCTION, instruction)
        env = {**trial.env, **self._env}
        if len(instruction) <= _VARIABLE_BYTES and b"\0" not in instruction:
            env = {VARIABLE: trial.instruction, **env}
        result = await trial.sandbox.exec(["sh", "-c", _RUN, "command", *self._argv], env=env)
        if result.exit_code != 0:
            said = (result.stderr or result.stdout)[-500:].decode("utf-8", "replace").strip()
            raise CommandFailedError(f"the command ended with {result.exit_code}: {said}")


def _argv(given: Any) -> list[str]:
    if isinstance(given, str) and given.strip():
        return ["sh", "-c", _clean("command", given)]
    if isinstance(given, list | tuple) and given:
        words = list(cast("list[Any]", given))
        if all(isinstance(word, str) for word in words) and words[0]:
            return [_clean("command", word) for word in words]
    raise ValueError("command is to be a text for the shell, or a list of texts: program, words")


def _env(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        pairs = cast("Mapping[Any, Any]", given)
        named = all(isinstance(name, str) and name and "=" not in name for name in pairs)
        if named and all(isinstance(value, str) for value in pairs.values()):
            return {_clean("env", name): _clean("env", value) for name, value in pairs.items()}
    raise ValueError("env is to be variables by name, each a text")


def _clean(option: str, text: str) -> str:
    if "\0" in text:
        raise ValueError(f"{option} has a NUL, which no program can be given")
    return text
