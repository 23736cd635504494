"""The reference learner: a prior over each world's documents that grows where secrets are found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from trialog.proto.canonical import NotCanonicalError, canonical
from trialog.proto.policy import initial_weights
from trialog.trainer.batch import BatchItem, check_batch
from trialog.trainer.errors import BatchError, CheckpointError

if TYPE_CHECKING:
    from trialog.proto.runspec import RunSpec  # brings pydantic, which the actor has no use for

Prior = dict[str, list[float]]


class Bandit:
    """For each reward above 0 whose secret was found: prior[world][found_doc] += lr x reward.

    Rewards are added one at a time, in the batch's order, and nothing is rounded.
    """

    def __init__(self, lr: float) -> None:
        self._lr = lr

    def initial(self, spec: RunSpec) -> bytes:
        """Return 1.0 for every document of every world."""
        return initial_weights(spec.n_worlds)

    def apply(self, weights: bytes, batch: Sequence[BatchItem]) -> bytes:
        """See Learner. Raises BatchError also for a world or document that has no weight, and for
        weights that outgrow a float."""
        check_batch(batch)
        prior = read(weights)
        for item in batch:
            docs = prior.get(item.world_id, [])
            if item.found_doc is None:
                continue
            if not 0 <= item.found_doc < len(docs):
                raise BatchError(f"{item.trial_id}: {item.world_id} has no {item.found_doc}")
            if item.reward > 0:
                docs[item.found_doc] += self._lr * item.reward
        try:
            return canonical({"doc_prior": prior})
        except NotCanonicalError as error:
            raise BatchError(f"the step takes a weight out of range: {error}") from error


def read(weights: bytes) -> Prior:
    """Return the prior of a checkpoint: 8 floats for each world. Raises CheckpointError."""
    try:
        doc_prior: Any = json.loads(weights)["doc_prior"]
        # Canonical JSON writes 1.0 as 1: a float again, or integers would grow without bound.
        return {
            world: [float(value) for value in docs]
            for world, docs in cast("Prior", doc_prior).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"not a bandit's weights: {error!r}") from error
