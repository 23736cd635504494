"""One living sandbox, spoken to through the socket of its PID 1."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from trialog.sandbox.bubblewrap import overlay, wire
from trialog.sandbox.bubblewrap.home import Home
from trialog.sandbox.errors import SandboxGoneError
from trialog.sandbox.provider import (
    DEFAULT_TIMEOUT_S,
    WORLD,
    ExecResult,
    Limits,
    check_exec_id,
    inside,
)
from trialog.sandbox.snapshot import Snapshot

_DISK_LOOK_S = 0.25
_READY_TIMEOUT_S = 20.0
_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": WORLD,
    "LANG": "C.UTF-8",
    "USER": "root",
}


class BubblewrapSandbox:
    """A sandbox that this worker owns until ``destroy`` (or its own death)."""

    def __init__(
        self,
        sandbox_id: str,
        home: Home,
        process: subprocess.Popen[bytes] | None,
        on_end: Callable[[BubblewrapSandbox], None],
        begun_at: float | None = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.begun_at = time.perf_counter() if begun_at is None else begun_at
        self._home = home
        self._process = process
        self._on_end = on_end
        self._lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._ended = False
        self._destroying: asyncio.Future[None] | None = None

    @property
    def limits(self) -> Limits:
        """The limits it was made with."""
        return self._home.record.spec.limits

    @property
    def world_digest(self) -> str:
        """The world it was made from."""
        return self._home.record.spec.world_digest

    async def ready(self) -> None:
        """Open the connection whose end tells PID 1 that we died, and wait for its first answer.

        Raises SandboxGoneError with what bubblewrap said.
        """
        try:
            self._lifeline.connect(self._home.address)
            async with asyncio.timeout(_READY_TIMEOUT_S):
                await self._ask(bytes([wire.Op.PING]))
        except (OSError, TimeoutError, SandboxGoneError) as error:
            said = self._home.log_tail() or str(error)
            raise SandboxGoneError(
                f"sandbox {self.sandbox_id} did not come to life: {said}"
            ) from error

    async def exec(
        self,
        exec_id: str,
        argv: Sequence[str],
        *,
        cwd: str = WORLD,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        output_limit_bytes: int | None = None,
    ) -> ExecResult:
        """Run a command once per exec id; see the seam."""
        limit = self.limits.output_bytes
        request = wire.exec_request(
            check_exec_id(exec_id),
            argv,
            cwd=inside(cwd),
            env={**_ENV, **(env or {})},
            stdin=stdin,
            timeout_s=timeout_s,
            output_limit_bytes=limit if output_limit_bytes is None else output_limit_bytes,
        )
        asking = asyncio.ensure_future(self._ask(request))
        try:
            over_disk = await self._watch_disk(asking)
            result = wire.exec_result(await asking)
        finally:
            asking.cancel()
        if not over_disk:
            return result
        return ExecResult(
            result.exit_code, result.stdout, result.stderr, result.truncated, limit="disk"
        )

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """Return a regular file's bytes; see the seam."""
        full = inside(path)
        return wire.file_bytes(path, await self._ask(wire.read_request(full, limit_bytes)))

    async def write(self, path: str, data: bytes) -> None:
        """Put a file in place; see the seam."""
        wire.file_bytes(path, await self._ask(wire.write_request(inside(path), data)))

    async def kill_all(self) -> None:
        """Kill every process inside but PID 1, and wait for their deaths."""
        await self._ask(bytes([wire.Op.KILL_ALL]))

    async def snapshot(self) -> Snapshot:
        """Kill everything inside and read the overlay's upper folder."""
        await self.kill_all()
        return await asyncio.to_thread(overlay.take, self._home.path / "upper", self._disk_bytes)

    async def destroy(self) -> None:
        """Kill PID 1 and remove everything; a second call waits for the first."""
        if self._destroying is None:
            self._ended = True
            self._lifeline.close()
            self._destroying = asyncio.ensure_future(asyncio.to_thread(self.bury))
        await asyncio.shield(self._destroying)
        self._on_end(self)

    def bury(self) -> None:
        """End and remove everything (blocking)."""
        self._lifeline.close()
        self._home.kill()
        if self._process is not None:
            self._process.kill()  # only bubblewrap's monitor is left to end
            self._process.wait()
        self._home.remove()

    @property
    def ended(self) -> bool:
        """Tell whether ``destroy`` was called."""
        return self._ended

    @property
    def _disk_bytes(self) -> int:
        return self.limits.disk_bytes

    async def _ask(self, request: bytes) -> bytes:
        if self._ended:
            raise SandboxGoneError(f"sandbox {self.sandbox_id} was destroyed")
        try:
            return await wire.ask(self._home.address, request)
        except SandboxGoneError as error:
            raise SandboxGoneError(f"sandbox {self.sandbox_id}: {error}") from error

    async def _watch_disk(self, asking: asyncio.Future[bytes]) -> bool:
        """Wait for a command; kill all when what it wrote goes over the limit. True if so.

        ext4 has no quota for a folder: between two looks a command can write more than it may.
        """
        while True:
            done, _ = await asyncio.wait([asking], timeout=_DISK_LOOK_S)
            if done:
                return False
            used = await asyncio.to_thread(overlay.usage, self._home.path / "upper")
            if used.disk_bytes > self._disk_bytes or used.entries > overlay.MAX_ENTRIES:
                await self.kill_all()
                return True
