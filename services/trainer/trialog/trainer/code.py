"""The code that a trainer runs for others: each learner's version by its name.

The actor asks too: it may have been started with other code than the host has now.
"""

from __future__ import annotations

from trialog.proto.codes import source_version
from trialog.trainer.learners import bandit


def versions() -> dict[str, str]:
    """Return the versions of the learners. Raises MissingSourceError."""
    return {"learner:bandit": source_version(bandit)}
