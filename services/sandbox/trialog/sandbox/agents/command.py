"""Any program inside the sandbox as an agent: it is given the instruction and left to work."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from trialog.proto.agents import check_options
from trialog.sandbox.agent import Try
from trialog.sandbox.errors import CommandFailedError
from trialog.sandbox.shell import Wrapped

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
        check_options(self.name, options)
        command = options["command"]
        is_text = isinstance(command, str)
        self._argv = ["sh", "-c", command] if is_text else list(command)
        self._meant = command if is_text else shlex.join(command)
        self._env = dict(options.get("env") or {})

    async def run(self, trial: Try) -> None:
        """Run the program. Raises CommandFailedError when it exits non-zero."""
        trial.log.message("agent", "I run the program that I was given.")
        instruction = trial.instruction.encode("utf-8", "surrogateescape")
        await trial.sandbox.write(INSTRUCTION, instruction)
        env = {**trial.env, **self._env}
        if len(instruction) <= _VARIABLE_BYTES and b"\0" not in instruction:
            env = {VARIABLE: trial.instruction, **env}
        words = Wrapped(["sh", "-c", _RUN, "command", *self._argv], self._meant)
        result = await trial.sandbox.exec(words, env=env)
        if result.exit_code != 0:
            said = (result.stderr or result.stdout)[-500:].decode("utf-8", "replace").strip()
            raise CommandFailedError(f"the command ended with {result.exit_code}: {said}")
