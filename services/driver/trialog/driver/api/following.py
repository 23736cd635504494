"""Wakes event streams when the log has grown, and ends them when the server stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator

from trialog.driver.api.problems import unavailable
from trialog.spine import bus as bus_module
from trialog.spine.bus import Bus

_POLL_S = 0.25
# Hints come one a batch of some worker; a moment later there is more to read at once.
_GATHER_S = 0.01
MAX_STREAMS = 1000


class Following:
    """All streams of one server: one subscription a partition, however many they are."""

    def __init__(self, bus: Bus | None) -> None:
        self._bus = bus
        self._partitions: set[int] = set()
        self._waiting: set[asyncio.Event] = set()
        self.closing = False

    @contextlib.contextmanager
    def listening(self) -> Generator[asyncio.Event]:
        """Yield an event that is set whenever the log may have grown."""
        woken = asyncio.Event()
        self._waiting.add(woken)
        try:
            yield woken
        finally:
            self._waiting.discard(woken)

    async def subscribe(self, partition: int) -> None:
        """Hear of a partition's growth; while the bus is away, polling has to do.

        Raises a 503 problem when there are too many streams already.
        """
        if len(self._waiting) >= MAX_STREAMS:
            raise unavailable(f"{MAX_STREAMS} event streams are open on this driver")
        if self._bus is None or partition in self._partitions:
            return
        self._partitions.add(partition)
        try:
            await self._bus.on_hint(partition, self._wake)
        except bus_module.DOWN:
            self._partitions.discard(partition)

    async def wait(self, woken: asyncio.Event) -> None:
        """Return when there may be more to read: a hint, a poll's time, or the server stops."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_S):
                await woken.wait()
            if not self.closing:
                await asyncio.sleep(_GATHER_S)

    def close(self) -> None:
        """End all streams."""
        self.closing = True
        self._wake()

    def _wake(self) -> None:
        for woken in self._waiting:
            woken.set()
