"""One living container, spoken to through the socket of its PID 1."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from trialog.sandbox.bubblewrap import wire
from trialog.sandbox.docker import mounted
from trialog.sandbox.docker.container import INIT, INSIDE
from trialog.sandbox.docker.daemon import Daemon, DaemonError
from trialog.sandbox.docker.disk import Disk, Watch
from trialog.sandbox.docker.folder import Folder, Record
from trialog.sandbox.errors import FileRefusedError, SandboxGoneError, SnapshotRefusedError
from trialog.sandbox.images import UNSAVED_ORPHAN_S, Image, Network, User
from trialog.sandbox.owning import to_its_end
from trialog.sandbox.provider import DEFAULT_TIMEOUT_S, ExecResult
from trialog.sandbox.rootfs.guest import Defaults, Guest
from trialog.sandbox.snapshot import Snapshot

_READY_TIMEOUT_S = 20.0
T = TypeVar("T")
_GONE = (404, 409)  # unknown, or being removed already


class DockerSandbox(Guest):
    """A sandbox that this worker owns until ``destroy`` (or its own death)."""

    def __init__(
        self,
        sandbox_id: str,
        folder: Folder,
        record: Record,
        daemon: Daemon,
        disk: Disk,
        on_end: Callable[[DockerSandbox], None],
    ) -> None:
        defaults = Defaults(record.env, record.workdir, record.user)
        super().__init__(self._request, record.limits, defaults)
        self.sandbox_id = sandbox_id
        self._folder = folder
        self._record = record
        self._daemon = daemon
        self._disk = disk
        self._on_end = on_end
        self._lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._watch: Watch | None = None
        self._saving = asyncio.Lock()
        self._ended = False
        self._destroying: asyncio.Future[None] | None = None

    @property
    def image(self) -> Image:
        """The image it was started from."""
        return self._record.image

    @property
    def ended(self) -> bool:
        """Tell whether ``destroy`` was called."""
        return self._ended

    async def ready(self) -> None:
        """Open the connection whose end tells PID 1 that we died, and wait for its first answer.

        Raises SandboxGoneError.
        """
        try:
            self._lifeline.connect(self._folder.address)
            async with asyncio.timeout(_READY_TIMEOUT_S):
                await self._request(bytes([wire.Op.PING]))
        except (OSError, TimeoutError, SandboxGoneError) as error:
            raise SandboxGoneError(f"sandbox {self.sandbox_id} does not answer: {error}") from error
        self._watch = Watch(self._disk, self._beside_bytes, self.kill_all)

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
        assert self._watch is not None, "a sandbox is ready before it is used"
        before = self._watch.overflows
        with self._watch.closely():
            result = await super().exec(
                exec_id,
                argv,
                cwd=cwd,
                env=env,
                stdin=stdin,
                timeout_s=timeout_s,
                output_limit_bytes=output_limit_bytes,
                user=user,
            )
        if self._watch.overflows == before or result.exit_code != -signal.SIGKILL:
            return result
        return dataclasses.replace(result, timed_out=False, limit="disk")

    async def begin(self, network: Network, states: Sequence[Path]) -> None:
        """Begin with saved states, before any command ran. Raises ImageError."""
        given = await mounted.give(self._request, network)
        await self._disk.after_start(states, self._run_init)
        begun = await mounted.restore(self._request, states, given)
        self._record = dataclasses.replace(self._record, mounted=begun)
        await asyncio.to_thread(self._folder.keep, self._record)

    async def _beside_bytes(self) -> int:
        """Return what lies on the disk and in no folder of the layer."""
        unlinked = wire.unlinked_bytes(await self._request(bytes([wire.Op.UNLINKED])))
        return unlinked + await mounted.disk_bytes(self._request)

    async def end_soon_until_saved(self) -> None:
        """Shorten what it outlives us by: nobody goes on in it before ``save``."""
        await self._request(wire.orphan_request(UNSAVED_ORPHAN_S))

    async def _run_init(self, exec_id: str, words: Sequence[str], stdin: bytes) -> ExecResult:
        return await super().exec(
            exec_id, [f"{INSIDE}/{INIT}", *words], cwd="/", stdin=stdin, user=0
        )

    async def save(self, target: Path, limit_bytes: int) -> Snapshot:
        """Write what differs from the image, while all inside stands still; see the seam.

        PID 1 lets everything go on when our connection ends, also by our death: the daemon's own
        freezer would need somebody to do so.
        """
        if self._ended:
            raise SandboxGoneError(f"sandbox {self.sandbox_id} was destroyed")
        async with self._saving, wire.Channel(self._folder.address) as channel:
            try:
                wire.file_bytes("save", await channel.ask(bytes([wire.Op.FREEZE])))
            except FileRefusedError as error:
                raise SnapshotRefusedError(str(error)) from error
            snapshot = await self._pack(target, limit_bytes)
            await channel.ask(wire.orphan_request(None))
            await channel.ask(bytes([wire.Op.THAW]))
        return snapshot

    async def _pack(self, target: Path, limit_bytes: int) -> Snapshot:
        begun = self._record.mounted
        with tempfile.TemporaryFile(dir=target.parent) as aside:
            async with mounted.changed(self._request, begun, aside, limit_bytes) as instead:
                return await to_its_end(self._disk.save(target, limit_bytes, instead))

    async def destroy(self) -> None:
        """Remove the container and everything of it; a second call waits for the first."""
        if self._destroying is None:
            self._end()
            self._destroying = asyncio.ensure_future(self._remove())
        await asyncio.shield(self._destroying)
        self._on_end(self)

    def leave(self) -> None:
        """Give up ownership and leave the sandbox to a later worker."""
        self._end()
        self._folder.close()
        self._on_end(self)

    def _end(self) -> None:
        self._ended = True
        self._lifeline.close()
        if self._watch is not None:
            self._watch.end()

    async def _remove(self) -> None:
        if self._record.container:
            await remove(self._daemon, self._record.container)
        await asyncio.to_thread(self._folder.remove)

    async def _request(self, request: bytes) -> bytes:
        if self._ended:
            raise SandboxGoneError(f"sandbox {self.sandbox_id} was destroyed")
        try:
            return await wire.ask(self._folder.address, request)
        except SandboxGoneError as error:
            raise SandboxGoneError(f"sandbox {self.sandbox_id}: {error}") from error


async def remove(daemon: Daemon, container: str) -> None:
    """Remove a container with its volumes and return when it is gone; harmless when it is."""
    try:
        params = {"force": "true", "v": "true"}
        await daemon.ask("DELETE", f"/containers/{container}", params=params)
    except DaemonError as error:
        if error.status not in _GONE:
            raise
        # The daemon removes it of itself once its PID 1 ended: wait until that is done.
        with contextlib.suppress(DaemonError):
            wait = {"condition": "removed"}
            await daemon.ask("POST", f"/containers/{container}/wait", params=wait)
