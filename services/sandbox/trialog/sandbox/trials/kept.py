"""What a stage of a trial came to, as the trajectory's blob keeps it: for grading it later."""

from __future__ import annotations

from typing import Any

import msgspec

from trialog.sandbox.record import KeptStep


class Graded(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stage's grades. ``mode`` says in what it was graded: shared, separate or restored;
    ``record`` is the blob of what the verifier left. Times are in seconds since the epoch."""

    mode: str
    rewards: dict[str, float]
    record: str
    started_at: float
    finished_at: float


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent left at the end of a stage.

    ``state`` is the blob of the sandbox's state, ``services`` how many processes lived on in it.
    ``baked_tests``: the image had a /tests of its own. ``graded`` are the grades of a stage that
    was graded before the next one began, by what ``grader`` names.
    """

    state: str
    services: int
    started_at: float
    finished_at: float
    baked_tests: bool = False
    grader: str = ""
    graded: Graded | None = None

    def kept(self) -> dict[str, Any]:
        """Return it as JSON."""
        return msgspec.to_builtins(self)


def result_of(step: KeptStep) -> Result:
    """Return what a kept step came to. Raises msgspec.ValidationError."""
    return msgspec.convert(step.result, Result)
