"""What all documents are made of."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from trialog.proto import events as ev
from trialog.spine.log import Recorded

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


def first_recorded(event: Recorded, provenance: ev.Provenance | None) -> Doc:
    """Return where an action's outcome was first recorded: here, so it was executed by this run, or
    by an ancestor, so it was recovered."""
    if provenance is None:
        return {"state": "executed", "run_id": event.run_id, "position": event.position}
    return {
        "state": "recovered",
        "run_id": provenance.run_id,
        "position": provenance.position,
    }
