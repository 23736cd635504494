"""A container's upper layer: how much is in it, what is in it, and filling it.

Read where it lies, which takes the right to read the daemon's folders.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trialog.sandbox.bubblewrap import overlay
from trialog.sandbox.docker.folder import Record
from trialog.sandbox.rootfs import state
from trialog.sandbox.snapshot import Snapshot

_LOOK_S = 0.25
_OPAQUE = "trusted.overlay.opaque"
_DRIVER = "overlay2"


def upper_of(inspected: dict[str, Any]) -> str:
    """Return where a container's upper layer lies, empty where this process may not write there."""
    driver = inspected.get("GraphDriver") or {}
    upper = str((driver.get("Data") or {}).get("UpperDir") or "")
    usable = driver.get("Name") == _DRIVER and os.geteuid() == 0 and os.access(upper, os.W_OK)
    return upper if usable else ""


class Disk:
    """The upper layer of one container."""

    def __init__(self, record: Record) -> None:
        self._upper = Path(record.upper)
        self._limit_bytes = record.limits.disk_bytes

    async def fill(self, states: Sequence[Path]) -> None:
        """Lay saved states into the layer of a container that was not started yet."""
        await asyncio.to_thread(state.unpack, states, self._upper, base=0, opaque=_OPAQUE)

    async def save(self, target: Path, limit_bytes: int) -> Snapshot:
        """Write the layer to a file; processes must stand still."""
        return await asyncio.to_thread(state.pack, self._upper, target, limit_bytes, base=0)

    async def overflows(self, running: asyncio.Future[Any]) -> bool:
        """Wait for a command, looking at the layer; True as soon as that is above its limit.

        The layer has no quota: between two looks a command can write more than it may.
        """
        while not running.done():
            await asyncio.wait([running], timeout=_LOOK_S)
            if running.done():
                break
            used = await asyncio.to_thread(overlay.usage, self._upper)
            if used.disk_bytes > self._limit_bytes or used.entries > overlay.MAX_ENTRIES:
                return True
        return False
