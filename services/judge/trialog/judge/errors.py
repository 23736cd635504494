"""What can go wrong in the judge, by the boundary crossed.

JudgeError
├── JudgeCallError             no usable answer came back: nothing is known about the trial
│   ├── JudgeUnavailableError  the model's server could not be reached, or said to come back later
│   ├── JudgeTimeoutError      no whole reply within the time allowed
│   └── JudgeRefusedError      the server will never take this request
└── ScoringError               replies that must not become a reward
    ├── MissingScoreError      a criterion has no score
    └── NonFiniteScoreError    a score is NaN or infinite, or a sum of scores is

A reply that came but is not valid is none of these: it is data (``JudgeReply.valid``).
"""

from __future__ import annotations


class JudgeError(Exception):
    """Base of the judge's errors."""


class JudgeCallError(JudgeError):
    """A call brought no reply. It may have been made and paid for all the same, unless it is known
    to be ``unpaid``: the request was not sent, or an error status was answered."""

    unpaid = False


class JudgeUnavailableError(JudgeCallError):
    """The server is not there, broke off, or answered 408, 429 or 5xx.

    ``retry_after_s`` is the server's wish in seconds, where it uttered one.
    """

    def __init__(
        self, message: str, retry_after_s: float | None = None, *, unpaid: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after_s, self.unpaid = retry_after_s, unpaid


class JudgeTimeoutError(JudgeCallError):
    """The reply was not there in time."""


class JudgeRefusedError(JudgeCallError):
    """The server answered a status that no retry will change."""

    unpaid = True

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ScoringError(JudgeError):
    """Replies that cannot be turned into a reward."""


class MissingScoreError(ScoringError):
    """A criterion of the rubric was not scored. It is not a zero."""


class NonFiniteScoreError(ScoringError):
    """NaN or an infinity where a score belongs."""
