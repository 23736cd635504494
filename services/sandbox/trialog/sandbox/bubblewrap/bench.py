"""A sandbox that one stage of an image is built in; what it wrote becomes a layer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from trialog.sandbox.bubblewrap.rooted import RootedSandbox
from trialog.sandbox.images import Image
from trialog.sandbox.provider import Limits
from trialog.sandbox.rootfs.guest import Guest
from trialog.sandbox.rootfs.store import ImageStore, Stored

MAX_ENTRIES = 1_000_000  # installing is what builds do
LIMITS = Limits(memory_bytes=4 << 30, pids=2048, disk_bytes=16 << 30, output_bytes=1 << 18)


class BuildBench:
    """A stage under work: a sandbox over the image that it begins from."""

    def __init__(
        self, sandbox: RootedSandbox, begun: Stored, store: ImageStore, layer: str
    ) -> None:
        self.guest: Guest = sandbox.guest
        self._sandbox = sandbox
        self._begun = begun
        self._store = store
        self._layer = layer

    async def ask(self, request: bytes) -> bytes:
        """Send a request to PID 1."""
        return await self._sandbox.ask(request)

    async def finish(self, image: Image) -> Stored:
        """Stop it and keep what it wrote as a layer over what it began from."""
        await self._sandbox.stop()
        wrote = await asyncio.to_thread(self._keep)
        layers = (self._layer, *self._begun.layers) if wrote else self._begun.layers
        return replace(self._begun, image=image, layers=layers)

    def _keep(self) -> bool:
        upper = self._sandbox.upper
        if not any(upper.iterdir()):
            return False
        with self._store.aside() as folder:
            upper.rename(folder)
            self._store.settle(folder, self._layer)
        return True

    async def discard(self) -> None:
        """Remove the sandbox."""
        await self._sandbox.destroy()
