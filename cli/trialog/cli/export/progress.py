"""How far an export is, on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable

from trialog.cli import output

_EVERY_S = 2.0


class Progress:
    """Says now and then how many of some things are done; what is over soon says nothing."""

    def __init__(
        self, things: str, total: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._things, self._total, self._clock = things, total, clock
        self._told_at = clock()
        self.done = 0

    def add(self, n: int = 1) -> None:
        """Take note of so many more that are done."""
        self.done += n
        now = self._clock()
        if now - self._told_at >= _EVERY_S:
            self._told_at = now
            of = f" of {self._total}" if self._total is not None else ""
            output.note(f"{self.done}{of} {self._things} ...")
