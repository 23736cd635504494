"""For how long, and how often, a driver that does not answer is asked again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from trialog.client.errors import Unreachable

_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 1.0

OnWait = Callable[[str, float], None]
"""Called before each wait with the cause and the seconds waited so far."""


@dataclass(frozen=True)
class Patience:
    """How long to bridge a driver's restart (``total_s``), and who is told while it lasts."""

    total_s: float = 30.0
    on_wait: OnWait | None = None


class Attempts:
    """The attempts of one call: says how long to wait before the next, or that it is over."""

    def __init__(
        self, patience: Patience, url: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._patience, self._url, self._clock = patience, url, clock
        self._start: float | None = None
        self._delay_s = _FIRST_DELAY_S

    def reset(self) -> None:
        """Forget the failures: the driver answered."""
        self._start, self._delay_s = None, _FIRST_DELAY_S

    def failed(self, cause: str) -> float:
        """Return the seconds to wait before the next attempt.

        Raises Unreachable when patience has run out.
        """
        now = self._clock()
        if self._start is None:
            self._start = now
        waited_s = now - self._start
        left_s = self._patience.total_s - waited_s
        if left_s <= 0:
            raise Unreachable(self._url, cause, waited_s)
        if self._patience.on_wait is not None:
            self._patience.on_wait(cause, waited_s)
        # Half is jitter, so that many clients do not return to a fresh driver at one instant.
        delay_s = self._delay_s * random.uniform(0.5, 1)  # noqa: S311 - no secret
        self._delay_s = min(self._delay_s * 2, _LONGEST_DELAY_S)
        return min(delay_s, left_s)
