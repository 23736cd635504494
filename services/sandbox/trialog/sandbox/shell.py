"""The sandbox as an agent has it: one user, one deadline, every call written down."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from trialog.sandbox.errors import FileRefusedError, SandboxGoneError, TrialTimedOutError
from trialog.sandbox.images import ImageSandbox, User
from trialog.sandbox.provider import ExecResult
from trialog.sandbox.trajectory.clip import decoded
from trialog.sandbox.trajectory.log import MAX_RESULT, Call, Recorder

_STREAM = MAX_RESULT // 2


class Wrapped(list[str]):
    """The words of a command that is there for another's sake: the one that is meant, which the
    trajectory shows."""

    def __init__(self, words: Sequence[str], meant: str) -> None:
        super().__init__(words)
        self.meant = meant


class Shell:
    """What a try sees of its sandbox, from the moment that this is made until ``close``.

    Exec ids are ``agent-STEP-N`` in the order of the calls, so that an agent that is run again over
    the same sandbox is told what its commands came to and none is run twice.
    """

    def __init__(
        self,
        sandbox: ImageSandbox,
        log: Recorder,
        timeout_s: float,
        *,
        step: int = 0,
        user: User | None = None,
        workdir: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.log = log
        self.deadline = asyncio.get_running_loop().time() + timeout_s
        self._sandbox = sandbox
        self._step, self._user, self._workdir = step, user, workdir
        self._env = dict(env or {})
        self._execs = 0
        self._closed = False

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float | None = None,
    ) -> ExecResult:
        """Run a command as the agent's user. Raises TrialTimedOutError at the try's deadline."""
        text = _meant(command)
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        arguments: dict[str, str | int] = {"command": text}
        if cwd is not None:
            arguments["cwd"] = cwd
        if env:
            arguments["env"] = " ".join(sorted(env))  # names alone: values may be secrets
        if stdin:
            arguments["stdin"] = decoded(stdin, MAX_RESULT)
        left_s = self._left_s()
        self._execs += 1
        call = self.log.call("exec", arguments)
        result = await self._sandbox.exec(
            f"agent-{self._step}-{self._execs}",
            argv,
            cwd=cwd if cwd is not None else self._workdir,
            env={**self._env, **(env or {})},
            stdin=stdin,
            timeout_s=left_s if timeout_s is None else min(timeout_s, left_s),
            user=self._user,
        )
        self.log.end(call, _told(result), result.exit_code)
        # A shorter limit is the agent's own, and it may go on after it.
        if result.timed_out and (timeout_s is None or timeout_s >= left_s):
            raise self._over()
        return result

    async def read(self, path: str, limit_bytes: int = 1 << 20) -> bytes:
        """Return a file's bytes."""
        with self._call("read", {"path": path}) as call:
            data = await self._sandbox.read(path, limit_bytes)
            self.log.end(call, decoded(data, MAX_RESULT))
            return data

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file in place."""
        shown = decoded(data, MAX_RESULT)
        with self._call("write", {"path": path, "mode": f"{mode:o}", "content": shown}) as call:
            await self._sandbox.write(path, data, mode)
            self.log.end(call, f"{len(data)} bytes")

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host folder's content into a folder."""
        with self._call("upload", {"target": target}) as call:
            await self._sandbox.upload(source, target)
            self.log.end(call, "done")

    def close(self) -> None:
        """Refuse every later call: the try is over, whatever the agent's code still does."""
        self._closed = True
        self.log.close()

    @contextmanager
    def _call(self, name: str, arguments: Mapping[str, str | int]) -> Generator[Call]:
        """A call about a file: one that is refused has the refusal as its result."""
        self._left_s()
        call = self.log.call(name, arguments)
        try:
            yield call
        except FileRefusedError as error:
            self.log.end(call, str(error))
            raise

    def _left_s(self) -> float:
        if self._closed:
            raise SandboxGoneError("the try is over, and its sandbox is the verifier's")
        left_s = self.deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise self._over()
        return left_s

    def _over(self) -> TrialTimedOutError:
        return TrialTimedOutError(f"the agent was stopped after its {self.timeout_s:g} s")


def _meant(command: str | Sequence[str]) -> str:
    if isinstance(command, Wrapped):
        return command.meant
    return command if isinstance(command, str) else shlex.join(command)


def _told(result: ExecResult) -> str:
    """Return what a command said: its output, what it complained of, how it was ended."""
    parts = [decoded(result.stdout, _STREAM)]
    if result.stderr:
        parts.append(decoded(result.stderr, _STREAM))
    if result.truncated:
        parts.append("[output above the limit was dropped]")
    if result.timed_out:
        parts.append("[killed: over its time]")
    if result.limit is not None:
        parts.append(f"[killed: over the limit of {result.limit}]")
    return "\n".join(part.rstrip("\n") for part in parts if part)
