"""What a container wrote: how much it is, saving it, and beginning with what another wrote.

``Upper`` reads and fills the upper layer where it lies. It takes root and the overlay2 driver;
``layers.Layers`` does the same through the daemon's interface alone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from trialog.sandbox.bubblewrap import overlay
from trialog.sandbox.provider import ExecResult
from trialog.sandbox.rootfs import state
from trialog.sandbox.snapshot import Snapshot

OPAQUE = "trusted.overlay.opaque"
_LOOK_S = 0.25
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

    async def save(self, target: Path, limit_bytes: int) -> Snapshot:
        """Write all to a file; processes must stand still."""
        ...

    async def overflows(self, running: asyncio.Future[Any]) -> bool:
        """Wait for a command, looking now and then; True as soon as there is too much.

        There is no quota: between two looks a command can write more than it may.
        """
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
        await asyncio.to_thread(state.unpack, states, self._upper, base=0, opaque=OPAQUE)

    async def after_start(self, states: Sequence[Path], run_init: RunInit) -> None:
        """Nothing is left to do."""

    async def save(self, target: Path, limit_bytes: int) -> Snapshot:
        """Read the layer; see ``Disk``."""
        return await asyncio.to_thread(state.pack, self._upper, target, limit_bytes, base=0)

    async def overflows(self, running: asyncio.Future[Any]) -> bool:
        """Measure the layer; see ``Disk``."""
        while not running.done():
            await asyncio.wait([running], timeout=_LOOK_S)
            if running.done():
                break
            used = await asyncio.to_thread(overlay.usage, self._upper)
            if used.disk_bytes > self._limit_bytes or used.entries > overlay.MAX_ENTRIES:
                return True
        return False
