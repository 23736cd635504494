"""A sandbox for tests of agents: real commands over a folder, with nothing enforced.

It keeps what an agent counts on (a root of its own, exec ids, deadlines), so that agents can be
tested without an image; who isolates is tested elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trialog.sandbox.bubblewrap.find import bwrap
from trialog.sandbox.errors import FileMissingError, FileRefusedError
from trialog.sandbox.images import Image, User
from trialog.sandbox.provider import DEFAULT_TIMEOUT_S, ExecResult

_MOUNTS = ("app", "logs", "solution", "tmp")


class LooseSandbox:
    """Commands see the host's /usr, and the folders that tasks use from ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sandbox_id = "loose"
        self.image = Image("0" * 64, workdir="/app")
        self.execs: list[tuple[str, dict[str, Any]]] = []
        self._results: dict[str, ExecResult] = {}
        self._groups: list[int] = []
        for name in (*_MOUNTS, "logs/agent"):
            (root / name).mkdir(parents=True, exist_ok=True)

    async def exec(
        self,
        exec_id: str,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        output_limit_bytes: int | None = None,
        user: User | None = None,
    ) -> ExecResult:
        """Run a command once per exec id, and kill all of it after its time."""
        self.execs.append((exec_id, {"argv": list(argv), "cwd": cwd, "env": env, "user": user}))
        if exec_id not in self._results:
            self._results[exec_id] = await self._run(argv, cwd, env or {}, stdin, timeout_s)
        return self._results[exec_id]

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """Return a file's bytes."""
        try:
            data = self._host(path).read_bytes()
        except FileNotFoundError as error:
            raise FileMissingError(f"{path} does not exist") from error
        if len(data) > limit_bytes:
            raise FileRefusedError(f"{path} has {len(data)} bytes, above {limit_bytes}")
        return data

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file in place."""
        target = self._host(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(mode)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a folder's content."""
        shutil.copytree(source, self._host(target), dirs_exist_ok=True)

    async def destroy(self) -> None:
        """Kill what commands left running."""
        for group in self._groups:
            _kill(group)

    def text(self, path: str) -> str:
        """Return a file's text."""
        return self._host(path).read_text()

    def _host(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    async def _run(
        self,
        argv: Sequence[str],
        cwd: str | None,
        env: Mapping[str, str],
        stdin: bytes,
        timeout_s: float,
    ) -> ExecResult:
        process = await asyncio.create_subprocess_exec(
            *self._bwrap(cwd or self.image.workdir),
            *argv,
            env={"PATH": os.defpath, **env},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._groups.append(process.pid)
        ended = asyncio.ensure_future(process.communicate(stdin))
        try:
            await asyncio.wait({ended}, timeout=timeout_s)
            timed_out = not ended.done()
        finally:
            if not ended.done():
                _kill(process.pid)
        out, err = await ended
        return ExecResult(process.returncode or 0, out, err, timed_out=timed_out)

    def _bwrap(self, cwd: str) -> list[str]:
        binds = [part for name in _MOUNTS for part in ("--bind", str(self.root / name), f"/{name}")]
        links = [
            part
            for name in ("bin", "lib", "lib64", "sbin")
            if (Path("/usr") / name).exists()
            for part in ("--symlink", f"usr/{name}", f"/{name}")
        ]
        base = ["--ro-bind", "/usr", "/usr", *links, "--dev", "/dev", "--proc", "/proc"]
        return [
            str(bwrap()),
            *base,
            *binds,
            *("--chdir", cwd, "--"),
        ]


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
