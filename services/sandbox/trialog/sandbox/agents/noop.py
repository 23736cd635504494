"""An agent that does nothing and leaves a trajectory of 2 KB: for measuring what is around it."""

from __future__ import annotations

from typing import Any

_FILLER = "0123456789abcdef" * 125


def trajectory(trial_id: str) -> dict[str, Any]:
    """Return a trajectory of about 2,000 bytes."""
    return {"turns": [], "answer": None, "files": [], "trial_id": trial_id, "text": _FILLER}
