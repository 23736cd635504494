"""The learner port: from weights and a batch of rewards to new weights. Pure: bytes in, bytes out.

Everything a learner needs to go on (weights, optimizer state, random state) is in the bytes, so
that their digest names the policy wholly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from trialog.trainer.batch import BatchItem
from trialog.trainer.errors import UnknownLearnerError
from trialog.trainer.learners.bandit import Bandit

if TYPE_CHECKING:
    from trialog.proto.runspec import RunSpec  # brings pydantic, which the actor has no use for


class Learner(Protocol):
    """Makes weights and changes them."""

    def initial(self, spec: RunSpec) -> bytes:
        """Return the weights of version 0 of a run."""
        ...

    def apply(self, weights: bytes, batch: Sequence[BatchItem]) -> bytes:
        """Return the weights after one step. The batch is in text order of trial ids.

        The same arguments give the same bytes on any machine. Raises BatchError, CheckpointError.
        """
        ...


def learner_config(spec: RunSpec) -> dict[str, Any]:
    """Return what names a run's learner: its part of the step key."""
    return {"name": spec.learner, "lr": spec.lr}


def learner_of(config: Mapping[str, Any]) -> Learner:
    """Return the learner that a configuration names. Raises UnknownLearnerError."""
    match dict(config):
        case {"name": "bandit", "lr": float() | int() as lr, **rest} if not rest:
            return Bandit(float(lr))
        case _:
            raise UnknownLearnerError(f"no learner for {dict(config)}")
