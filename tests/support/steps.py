"""Steps to train: orders made from golden rewards, or made up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support import golden
from trialog.proto.canonical import bytes_digest, digest
from trialog.proto.identity import step_key
from trialog.proto.policy import initial_weights
from trialog.trainer.batch import BatchItem
from trialog.trainer.policy import StepOrder

LEARNER = {"name": "bandit", "lr": 2.0}
RUN = "r-abcdefghijklmnop"
FIRST = initial_weights(3)


def item_of(reward: dict[str, Any]) -> BatchItem:
    """Return a golden reward as a batch's item."""
    keys = ("trial_id", "world_id", "found_doc", "reward")
    return BatchItem(**{key: reward[key] for key in keys}, digest=digest(reward))


def golden_batch(run: str, step: int) -> tuple[BatchItem, ...]:
    """Return a golden run's rewards of a step, in its order."""
    return tuple(item_of(reward) for reward in golden.RUNS[run]["steps"][step]["rewards"])


def order_of(
    step: int, prior: bytes, batch: Sequence[BatchItem], learner: dict[str, Any] = LEARNER
) -> StepOrder:
    """Return the order of a step over a prior's bytes, its key as the driver makes it."""
    prior_digest = bytes_digest(prior)
    key = step_key(
        code="",
        step=step,
        prior_digest=prior_digest,
        judgments=[item.digest for item in batch],
        learner=learner,
    )
    return StepOrder(step, key, prior_digest, learner, tuple(batch))


class Checkpoints:
    """A store of weights by digest, as the blob store is, that remembers what was asked for."""

    def __init__(self, *weights: bytes) -> None:
        self._held = {bytes_digest(each): each for each in weights}
        self.loaded: list[str] = []

    def keep(self, weights: bytes) -> None:
        """Store weights."""
        self._held[bytes_digest(weights)] = weights

    async def load(self, name: str) -> bytes:
        """Return weights by digest."""
        self.loaded.append(name)
        return self._held[name]
