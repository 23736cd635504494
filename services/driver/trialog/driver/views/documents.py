"""What all documents are made of."""

from __future__ import annotations

from datetime import datetime
from typing import Any

Doc = dict[str, Any]


def timestamp(at: datetime) -> str:
    """Return a recorded time as ISO 8601 in UTC, always with microseconds."""
    return at.isoformat(timespec="microseconds")


def rounded(value: float | None, digits: int) -> float | None:
    """Return a mean as it is shown; what has none stays None."""
    return None if value is None else round(value, digits)


def add(counts: dict[str, int], name: str) -> None:
    """Count one more of a name."""
    counts[name] = counts.get(name, 0) + 1
