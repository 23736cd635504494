"""A sandbox with an image's root filesystem."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trialog.sandbox.bubblewrap import overlay, wire
from trialog.sandbox.bubblewrap.home import Home, Rooted
from trialog.sandbox.bubblewrap.living import Living
from trialog.sandbox.errors import SandboxGoneError
from trialog.sandbox.images import UNSAVED_ORPHAN_S, Image, Pulled, User
from trialog.sandbox.owning import to_its_end
from trialog.sandbox.provider import DEFAULT_TIMEOUT_S, ExecResult
from trialog.sandbox.rootfs import state
from trialog.sandbox.rootfs.guest import Guest
from trialog.sandbox.snapshot import Snapshot

_LOOK_S = 0.25
_IDLE_LOOK_S = 1.0
_LOOK_SHARE = 20  # a look at a large folder is paid for by a pause that many times as long


class RootedSandbox(Living):
    """A sandbox that this worker owns until ``destroy``, ``let_go`` or its own death."""

    def __init__(
        self,
        sandbox_id: str,
        home: Home,
        process: subprocess.Popen[bytes] | None,
        on_end: Callable[[Any], None],
        begun_at: float | None = None,
    ) -> None:
        super().__init__(sandbox_id, home, process, on_end, begun_at)
        assert home.record.rooted is not None
        self._rooted: Rooted = home.record.rooted
        self.guest = Guest(self._ask, self.limits, self._rooted.defaults())
        self.max_entries = overlay.MAX_ENTRIES
        self._running = 0
        self._woken = asyncio.Event()
        self._over_disk = 0
        self._saving = asyncio.Lock()
        self._saved = False
        self._watching: asyncio.Task[None] | None = None

    @property
    def image(self) -> Image:
        """The image it was started from."""
        return self._rooted.image(self.content)

    async def ready(self) -> None:
        """Wait for PID 1 and begin to watch the disk."""
        await super().ready()
        self._watching = asyncio.ensure_future(self._watch())

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
        """Run a command once per exec id; see the seam."""
        before = self._over_disk
        self._running += 1
        self._woken.set()
        try:
            result = await self.guest.exec(
                exec_id,
                argv,
                cwd=cwd,
                env=env,
                stdin=stdin,
                timeout_s=timeout_s,
                output_limit_bytes=output_limit_bytes,
                user=user,
            )
        finally:
            self._running -= 1
        if self._over_disk == before or result.exit_code != -9:
            return result
        return ExecResult(
            result.exit_code, result.stdout, result.stderr, result.truncated, limit="disk"
        )

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """Return a regular file's bytes; see the seam."""
        return await self.guest.read(path, limit_bytes)

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file in place; see the seam."""
        await self.guest.write(path, data, mode)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a folder in; see the seam."""
        await self.guest.upload(source, target)

    async def download(
        self, source: str, target: Path, limit_bytes: int, exclude: Sequence[str] = ()
    ) -> Pulled:
        """Copy a file or folder out; see the seam."""
        return await self.guest.download(source, target, limit_bytes, exclude)

    async def processes(self) -> int:
        """Return how many processes live inside; see the seam."""
        return await self.guest.processes()

    async def save(self, target: Path, limit_bytes: int) -> Snapshot:
        """Write what differs from the image, while all inside stands still; see the seam.

        PID 1 lets everything go on when our connection ends, also by our death.
        """
        if self._ended:
            raise SandboxGoneError(f"sandbox {self.sandbox_id} was destroyed")
        async with self._saving, wire.Channel(self._home.address) as channel:
            frozen = await channel.ask(bytes([wire.Op.FREEZE]))
            wire.file_bytes("save", frozen)
            base = self._rooted.base
            packing = asyncio.to_thread(
                state.pack, self._home.upper, target, limit_bytes, base=base
            )
            snapshot = await to_its_end(packing)
            await channel.ask(wire.orphan_request(None))
            await channel.ask(bytes([wire.Op.THAW]))
        self._saved = True
        return snapshot

    async def end_soon_unless_saved(self) -> None:
        """Shorten what it outlives us by until ``save``: nobody goes on in it before that."""
        if self._process is not None and not self._saved:
            await self._ask(wire.orphan_request(UNSAVED_ORPHAN_S))

    async def ask(self, request: bytes) -> bytes:
        """Send a request to PID 1 and return its reply; for the builder."""
        return await self._ask(request)

    @property
    def upper(self) -> Path:
        """Where what it wrote lies on the host; for the builder."""
        return self._home.upper

    async def stop(self) -> None:
        """End all inside, PID 1 too, and leave what was written; only ``destroy`` comes after."""
        self._ended = True
        self._unwatch()
        await asyncio.to_thread(self._home.kill)

    async def destroy(self) -> None:
        """Kill PID 1 and remove everything; a second call waits for the first."""
        self._unwatch()
        await super().destroy()

    def let_go(self) -> None:
        """Leave it to itself; see ``Living``."""
        self._unwatch()
        super().let_go()

    def _unwatch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        """Look at what was written, also between commands; kill all when it is above the limit.

        ext4 has no quota for a folder: between two looks more can be written than may be.
        """
        pause = _LOOK_S
        with contextlib.suppress(SandboxGoneError):
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), pause)
                    await asyncio.sleep(_LOOK_S)  # a new command has written nothing yet
                self._woken.clear()
                began = time.perf_counter()
                used_bytes, entries = await self._used()
                took = time.perf_counter() - began
                if used_bytes > self.limits.disk_bytes or entries > self.max_entries:
                    self._over_disk += 1
                    await self.kill_all()
                pause = max(_LOOK_S if self._running else _IDLE_LOOK_S, took * _LOOK_SHARE)

    async def _used(self) -> tuple[int, int]:
        """Measure the upper folder, and what has no name in it any more and is open still."""
        unlinked = wire.unlinked_bytes(await self._ask(bytes([wire.Op.UNLINKED])))
        used = await asyncio.to_thread(overlay.usage, self._home.upper)
        return used.disk_bytes + unlinked, used.entries
