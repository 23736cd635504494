"""The check ``completed``: did the try end, and was it kept?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trialog.judge.evidence import Evidence


def score(evidence: Evidence) -> float:
    """Return 1.0: it is so for every trial that comes to be judged."""
    return 1.0
