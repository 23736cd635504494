"""Time as an argument: what stands in for Postgres's clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Return the time of this machine, in UTC."""
    return datetime.now(UTC)


class ManualClock:
    """A clock that moves only when it is told to."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def __call__(self) -> datetime:
        """Return the time."""
        return self._at

    def advance(self, ms: float) -> None:
        """Let time pass."""
        self._at += timedelta(milliseconds=ms)
