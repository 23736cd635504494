"""The check ``correct``: did the verifier find the answer right?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trialog.judge.evidence import Evidence


def score(evidence: Evidence) -> float:
    """Return 1.0 when the verifier said so, else 0.0."""
    return float(evidence.verified)
