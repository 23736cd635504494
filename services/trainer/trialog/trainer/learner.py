"""The learner port: from weights and a batch of rewards to new weights. Pure: bytes in, bytes out.

Everything a learner needs to go on (weights, optimizer state, random state) is in the bytes, so
that their digest names the policy wholly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from trialog.trainer.errors import BatchError, UnknownLearnerError

if TYPE_CHECKING:
    from trialog.proto.runspec import RunSpec  # brings pydantic, which the actor has no use for


class BatchItem(msgspec.Struct, frozen=True):
    """A trial's judgment as a learner sees it; ``digest`` is that of the whole judgment."""

    trial_id: str
    world_id: str
    found_doc: int | None
    reward: float
    digest: str


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
    from trialog.trainer.learners.bandit import Bandit  # noqa: PLC0415 - it implements this port

    match dict(config):
        case {"name": "bandit", "lr": float() | int() as lr, **rest} if not rest:
            return Bandit(float(lr))
        case _:
            raise UnknownLearnerError(f"no learner for {dict(config)}")


def check_batch(batch: Sequence[BatchItem]) -> None:
    """Raise BatchError unless trial ids ascend strictly as text and every reward is finite.

    Floats do not commute in a sum: rewards in the order of completion would change the last bits
    of the weights, and with them every later action key.
    """
    for before, after in itertools.pairwise(batch):
        if before.trial_id >= after.trial_id:
            raise BatchError(f"{after.trial_id} comes after {before.trial_id}: order by trial id")
    for item in batch:
        if not math.isfinite(item.reward):
            raise BatchError(f"the reward of {item.trial_id} is {item.reward}")
