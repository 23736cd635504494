"""What a judge knows of a trial before it is judged."""

from __future__ import annotations

from typing import Any

import msgspec


class Evidence(msgspec.Struct, frozen=True):
    """What is known of a trial before it is judged.

    ``trajectory`` is its meaning ({"turns", "answer", "files"}): no attempt, time or cost.
    ``reward`` is the one that a task's own verifier gave.
    """

    trial_id: str
    trajectory: dict[str, Any]
    verified: bool
    found_doc: int | None
    n_turns: int
    reward: float | None = None
