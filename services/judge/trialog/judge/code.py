"""The code that a judge runs for others: each check's version by its name."""

from __future__ import annotations

from trialog.judge.checks import completed, correct
from trialog.proto.codes import source_version
from trialog.proto.keys import check_code


def versions() -> dict[str, str]:
    """Return the versions of the deterministic checks. Raises MissingSourceError."""
    return {
        check_code("correct"): source_version(correct),
        check_code("completed"): source_version(completed),
    }
