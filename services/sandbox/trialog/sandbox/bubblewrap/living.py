"""One living sandbox, reached through the socket of its PID 1: what both kinds have in common."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

from trialog.sandbox.bubblewrap import wire
from trialog.sandbox.bubblewrap.home import Home
from trialog.sandbox.errors import SandboxGoneError
from trialog.sandbox.provider import Limits

_READY_TIMEOUT_S = 20.0


class Living:
    """A sandbox that this worker owns until ``destroy`` (or its own death)."""

    def __init__(
        self,
        sandbox_id: str,
        home: Home,
        process: subprocess.Popen[bytes] | None,
        on_end: Callable[[Any], None],
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
        return self._home.record.limits

    @property
    def content(self) -> str:
        """The digest of the world or image that it was made from."""
        return self._home.record.content

    @property
    def outlives(self) -> bool:
        """Tell whether it may go on without its worker for a while."""
        return self._home.record.outlives

    @property
    def ended(self) -> bool:
        """Tell whether ``destroy`` was called."""
        return self._ended

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

    async def kill_all(self) -> None:
        """Kill everything inside; see the seam."""
        await self._ask(bytes([wire.Op.KILL_ALL]))

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

    def let_go(self) -> None:
        """Leave it to itself and to whoever resumes it within its time."""
        self._ended = True
        self._lifeline.close()
        self._home.close()
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for any more
        self._on_end(self)

    async def _ask(self, request: bytes) -> bytes:
        if self._ended:
            raise SandboxGoneError(f"sandbox {self.sandbox_id} was destroyed")
        try:
            return await wire.ask(self._home.address, request)
        except SandboxGoneError as error:
            raise SandboxGoneError(f"sandbox {self.sandbox_id}: {error}") from error
