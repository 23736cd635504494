"""The agent that knows the answer: it runs the task's own solution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trialog.proto.agents import check_options
from trialog.sandbox.agent import Try
from trialog.sandbox.errors import AgentError, CommandFailedError
from trialog.sandbox.shell import Wrapped

SOLUTION = "/solution"
OUTPUT = "/logs/agent/oracle.txt"

# The script is started by a bash where there is one: it then interprets a script that names no
# interpreter. Its output goes to a file, which a service that it leaves running can go on writing
# to; the end of it is printed, for the trajectory.
_RUN = f"""\
if command -v bash > /dev/null 2>&1; then shell=bash; else shell=sh; fi
$shell -c '({SOLUTION}/solve.sh)' > {OUTPUT} 2>&1 < /dev/null
code=$?
tail -c 16384 {OUTPUT}
exit $code
"""


class Oracle:
    """Uploads the solution and runs its solve.sh as the agent's user."""

    name = "oracle"
    version = "1"

    def __init__(self, options: Mapping[str, Any]) -> None:
        check_options(self.name, options)

    async def run(self, trial: Try) -> None:
        """Solve the task. Raises CommandFailedError when solve.sh says that it could not."""
        script = None if trial.solution is None else trial.solution / "solve.sh"
        if script is None or not script.is_file():
            raise AgentError("the task has no solution/solve.sh for the oracle to run")
        trial.log.message("agent", "I run the task's own solution.")
        sandbox = trial.sandbox
        await sandbox.upload(script.parent, SOLUTION)
        await sandbox.write(f"{SOLUTION}/solve.sh", script.read_bytes(), 0o755)
        words = Wrapped(["sh", "-c", _RUN], f"{SOLUTION}/solve.sh")
        result = await sandbox.exec(words, env={"DEBIAN_FRONTEND": "noninteractive", **trial.env})
        if result.exit_code != 0:
            said = result.stdout[-500:].decode("utf-8", "replace").strip()
            raise CommandFailedError(f"solve.sh ended with {result.exit_code}: {said}")
