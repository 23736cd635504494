"""What a container wrote: how much it is, saving it, and beginning with what another wrote.

``Upper`` reads and fills the upper layer where it lies. It takes root and the overlay2 driver;
``layers.Layers`` does the same through the daemon's interface alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Protocol

from trialog.sandbox.bubblewrap import overlay
from trialog.sandbox.docker import mounted
from trialog.sandbox.errors import SandboxGoneError
from trialog.sandbox.provider import ExecResult
from trialog.sandbox.rootfs import state
from trialog.sandbox.snapshot import Snapshot

OPAQUE = "trusted.overlay.opaque"
_LOOK_S, _IDLE_LOOK_S = 0.25, 1.0
_LOOK_SHARE = 20
_DRIVER = "overlay2"

# Runs PID 1's binary inside: an exec id, its arguments, its standard input.
RunInit = Callable[[str, Sequence[str], bytes], Awaitable[ExecResult]]


class Disk(Protocol):
    """The part of a container that its image does not have."""

    async def before_start(self, states: Sequence[Path]) -> None:
        """Lay saved states into a container that was made and not started. Raises ImageError."""
        ...

    async def after_start(self, states: Sequence[Path], run_init: RunInit) -> None:
        """Lay saved states into a container in which only PID 1 runs. Raises ImageError."""
        ...

    async def save(self, target: Path, limit_bytes: int, instead: state.Instead) -> Snapshot:
        """Write all to a file; processes must stand still."""
        ...

    async def too_much(self, beside_bytes: int) -> bool:
        """Look once whether there is more than the limit, with what lies elsewhere."""
        ...


def upper_of(inspected: dict[str, Any]) -> str:
    """Return where a container's upper layer lies, empty where this process may not write there."""
    driver = inspected.get("GraphDriver") or {}
    upper = str((driver.get("Data") or {}).get("UpperDir") or "")
    usable = driver.get("Name") == _DRIVER and os.geteuid() == 0 and os.access(upper, os.W_OK)
    return upper if usable else ""


class Upper:
    """An upper layer that this process may write to."""

    def __init__(self, upper: Path, limit_bytes: int) -> None:
        self._upper = upper
        self._limit_bytes = limit_bytes

    async def before_start(self, states: Sequence[Path]) -> None:
        """Fill the layer; see ``Disk``."""
        left_out = mounted.NAMES
        await asyncio.to_thread(
            state.unpack, states, self._upper, base=0, opaque=OPAQUE, left_out=left_out
        )

    async def after_start(self, states: Sequence[Path], run_init: RunInit) -> None:
        """Nothing is left to do."""

    async def save(self, target: Path, limit_bytes: int, instead: state.Instead) -> Snapshot:
        """Read the layer; see ``Disk``."""
        return await asyncio.to_thread(
            state.pack, self._upper, target, limit_bytes, base=0, instead=instead
        )

    async def too_much(self, beside_bytes: int) -> bool:
        """Measure the layer; see ``Disk``."""
        try:
            used = await asyncio.to_thread(overlay.usage, self._upper)
        except FileNotFoundError:  # the container is gone, and so is what it wrote
            return False
        used_bytes = used.disk_bytes + beside_bytes
        return used_bytes > self._limit_bytes or used.entries > overlay.MAX_ENTRIES


class Watch:
    """Looks at a disk as long as its sandbox lives, and has all inside killed above the limit.

    It looks between commands, too: a writer in the background does not stop when its command does.
    There is no quota, so between two looks more can be written than may be. ``overflows`` counts.
    """

    def __init__(
        self,
        disk: Disk,
        beside_bytes: Callable[[], Awaitable[int]],
        kill_all: Callable[[], Awaitable[None]],
    ) -> None:
        self._disk = disk
        self._beside_bytes = beside_bytes
        self._kill_all = kill_all
        self._begun = asyncio.Event()
        self._running = 0
        self._watching = asyncio.ensure_future(self._watch())
        self.overflows = 0

    @contextlib.contextmanager
    def closely(self) -> Generator[None]:
        """Look more often for the length of the block: a command runs."""
        self._running += 1
        self._begun.set()
        try:
            yield
        finally:
            self._running -= 1

    def end(self) -> None:
        """Look no more."""
        self._watching.cancel()

    async def _watch(self) -> None:
        pause = _LOOK_S
        with contextlib.suppress(SandboxGoneError):
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._begun.wait(), pause)
                    await asyncio.sleep(_LOOK_S)  # a new command has written nothing yet
                self._begun.clear()
                began = time.perf_counter()
                if await self._disk.too_much(await self._beside_bytes()):
                    self.overflows += 1
                    await self._kill_all()
                # A large folder takes long to look at, and others want to work as well.
                took = time.perf_counter() - began
                pause = max(_LOOK_S if self._running else _IDLE_LOOK_S, took * _LOOK_SHARE)
