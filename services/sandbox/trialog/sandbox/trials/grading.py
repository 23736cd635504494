"""Running a verifier in a sandbox and reading what it gave."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trialog.proto.tasks.layout import TEST_SCRIPT
from trialog.sandbox.errors import FileMissingError, FileRefusedError, TaskError
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.provider import ExecResult
from trialog.sandbox.trials import left
from trialog.sandbox.trials import rewards as files
from trialog.sandbox.trials.plan import SCRIPT, TESTS, VERIFIER_LOGS, Grading
from trialog.sandbox.trials.rewards import Rewards
from trialog.sandbox.trials.setup import checked, said

TIMEOUT = "VerifierTimeoutError"
_STDOUT = f"{VERIFIER_LOGS}/test-stdout.txt"
_JSON, _TEXT = f"{VERIFIER_LOGS}/reward.json", f"{VERIFIER_LOGS}/reward.txt"
# What a link leads to is another's: only links to the two folders are taken away.
_CLEAR = (
    f"for path in /logs {VERIFIER_LOGS} {TESTS}; do "
    'if [ -L "$path" ]; then rm -f "$path"; fi; done; '
    f"if [ ! -d {VERIFIER_LOGS} ]; then mkdir -p {VERIFIER_LOGS} || exit 1; fi; "
    f"chmod 777 {VERIFIER_LOGS} || exit 1; "
    f'for path in {_JSON} {_TEXT} {_STDOUT} "$@"; do '
    'if [ -e "$path" ] || [ -L "$path" ]; then rm -rf "$path" || exit 1; fi; done'
)
_EXECUTABLE = f"if [ -e {SCRIPT} ]; then chmod +x {SCRIPT}; fi"
# As the format runs it: by bash where there is one, which also runs a script without a first line.
_RUN = (
    "if command -v bash > /dev/null 2>&1; then shell=bash; else shell=sh; fi; "
    f"exec $shell -c '({SCRIPT}) > {_STDOUT} 2>&1'"
)


@dataclass(frozen=True, slots=True)
class Bench:
    """A sandbox to grade in.

    ``label`` makes the names of its commands: the same for a worker that goes on after another.
    ``mark`` is written once the tests lie ready; nobody inside can have written it before.
    ``has_tests``: /tests is the image's and stays; ``is_over``: nothing comes after, so that all
    that lives inside is killed before the rewards are read.
    """

    sandbox: ImageSandbox
    label: str
    mark: str
    has_tests: bool
    is_over: bool = True

    @property
    def _mark_path(self) -> str:
        return f"/run/trialog-{self.label}"

    async def is_marked(self) -> bool:
        """Whether a worker before us laid the tests ready, and may have begun to run them."""
        try:
            found = await self.sandbox.read(self._mark_path, len(self.mark))
        except FileRefusedError:
            return False
        return found == self.mark.encode()

    async def lay_ready(self, grading: Grading, *, bundled: bool) -> None:
        """Take earlier rewards away and put the tests in place. Raises TaskError, SandboxError."""
        gone = () if self.has_tests else (TESTS,)
        await checked(self.sandbox, f"{self.label}-clear", _CLEAR, *gone)
        if bundled:
            await checked(self.sandbox, f"{self.label}-chmod", _EXECUTABLE)
        else:
            await self._upload(grading.tests)
        await self.sandbox.write(self._mark_path, self.mark.encode(), 0o600)

    async def _upload(self, tests: Sequence[Path]) -> None:
        for folder in tests:
            await self.sandbox.upload(folder, TESTS)
        script = await asyncio.to_thread(_not_executable, tests)
        if script is not None:
            await self.sandbox.write(SCRIPT, script, 0o755)

    async def grade(self, grading: Grading, into: Path) -> Rewards:
        """Run the tests, copy what they left into a folder, and return the rewards.

        The exit code counts for nothing. Raises TaskError, SandboxError.
        """
        result = await self.sandbox.exec(
            self.label,
            ["sh", "-c", _RUN],
            env=grading.env,
            timeout_s=grading.timeout_s,
            user=grading.user,
        )
        if self.is_over:
            await self.sandbox.kill_all()
        await left.take(self.sandbox, into)
        rewards = await self._rewards(result, grading)
        if not self.is_over:
            # The agent goes on here, and is to see nothing of how it is graded.
            await checked(self.sandbox, f"{self.label}-away", f"rm -rf {TESTS} {self._mark_path}")
        return rewards

    async def _rewards(self, result: ExecResult, grading: Grading) -> Rewards:
        if result.timed_out:
            raise TaskError(TIMEOUT, f"the verifier took more than {grading.timeout_s:g} s")
        in_json = await self._file(_JSON)
        in_text = None if in_json is not None else await self._file(_TEXT)
        try:
            return files.parse(in_json, in_text)
        except TaskError as error:
            if error.name != files.NOT_FOUND:
                raise
            raise TaskError(error.name, f"{error} (test.sh: {said(result)})") from error

    async def _file(self, path: str) -> bytes | None:
        try:
            return await self.sandbox.read(path, files.MAX_FILE_BYTES)
        except FileMissingError:
            return None
        except FileRefusedError as error:
            raise TaskError(files.UNREADABLE, f"{path} is no file of rewards: {error}") from error


def _not_executable(tests: Sequence[Path]) -> bytes | None:
    """Return the script that is run, unless its mode lets it be: the last folder's counts."""
    found = [folder / TEST_SCRIPT for folder in tests if (folder / TEST_SCRIPT).is_file()]
    is_fine = not found or found[-1].stat().st_mode & 0o100
    return None if is_fine else found[-1].read_bytes()
