"""A step's judgments as a learner sees them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec

from trialog.trainer.errors import BatchError


class BatchItem(msgspec.Struct, frozen=True):
    """A trial's judgment as a learner sees it; ``digest`` is that of the whole judgment."""

    trial_id: str
    world_id: str
    found_doc: int | None
    reward: float
    digest: str


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
