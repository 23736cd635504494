"""What is said to a policy's actor, and what it keeps in mind. Nothing here knows of Ray."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

import msgspec

from trialog.proto.canonical import bytes_digest
from trialog.trainer import code
from trialog.trainer.batch import BatchItem
from trialog.trainer.errors import CheckpointError
from trialog.trainer.learner import learner_of

KEPT_STEPS = 16
KEPT_WEIGHTS = 4


class StepOrder(msgspec.Struct, frozen=True):
    """One step to apply: everything its key stands for, and the key itself."""

    step: int
    step_key: str
    prior_digest: str
    learner: dict[str, Any]
    batch: tuple[BatchItem, ...]


class Applied(msgspec.Struct, frozen=True):
    """A step's result: the new weights, their digest, and who applied it. ``code`` is the version
    of the learner that did."""

    digest: str
    weights: bytes
    actor: str
    pid: int
    code: str


class UnknownPrior(msgspec.Struct, frozen=True):
    """The answer of an actor that does not hold the prior: send its bytes along."""

    digest: str


class Conflict(msgspec.Struct, frozen=True):
    """The answer of an actor that applied this step to other inputs."""

    step: int
    kept_key: str


Outcome = Applied | UnknownPrior | Conflict


class _Kept(msgspec.Struct, frozen=True):
    inputs: bytes
    step_key: str
    result: Applied


class PolicyMemory:
    """A cache of weights by digest and of results by step. Losing it costs a load, nothing else."""

    def __init__(self, actor: str, pid: int) -> None:
        self._actor = actor
        self._pid = pid
        self._code = code.versions()  # now: the files may change while the process lives
        self._weights: OrderedDict[str, bytes] = OrderedDict()
        self._steps: OrderedDict[int, _Kept] = OrderedDict()
        self.applied = 0
        """Steps worked out, repetitions not counted."""

    def apply(self, order: StepOrder, prior: bytes | None = None) -> Outcome:
        """Apply a step once. A repeated order has the kept result, without work.

        Raises UnknownLearnerError, BatchError, and CheckpointError when ``prior`` is not what its
        digest says.
        """
        inputs = _fingerprint(order)
        kept = self._steps.get(order.step)
        if kept is not None:
            same = kept.inputs == inputs
            return kept.result if same else Conflict(order.step, kept.step_key)
        if prior is not None and bytes_digest(prior) != order.prior_digest:
            raise CheckpointError(f"the checkpoint {order.prior_digest} holds other bytes")
        held = self._weights.get(order.prior_digest) if prior is None else prior
        if held is None:
            return UnknownPrior(order.prior_digest)
        weights = learner_of(order.learner).apply(held, order.batch)
        version = self._code[f"learner:{order.learner['name']}"]
        result = Applied(bytes_digest(weights), weights, self._actor, self._pid, version)
        self.applied += 1
        self._steps[order.step] = _Kept(inputs, order.step_key, result)
        self._weights[result.digest] = weights
        _trim(self._steps, KEPT_STEPS)
        _trim(self._weights, KEPT_WEIGHTS)
        return result

    def forget(self) -> None:
        """Drop everything: for a host whose result was not the one recorded."""
        self._weights.clear()
        self._steps.clear()


def _fingerprint(order: StepOrder) -> bytes:
    # Compared in this process only, so any stable text will do; canonical JSON is 50 times slower.
    return hashlib.sha256(msgspec.json.encode(order, order="deterministic")).digest()


def _trim(kept: OrderedDict[Any, Any], size: int) -> None:
    while len(kept) > size:
        kept.popitem(last=False)
