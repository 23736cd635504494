"""The reference policy's weights: for every world a prior over its documents."""

from __future__ import annotations

from typing import Any

from trialog.proto.canonical import canonical
from trialog.proto.runspec import RunSpec

N_DOCS = 8

Weights = dict[str, Any]


def initial_weights(n_worlds: int) -> bytes:
    """Return version 0: 1.0 for every document, as the canonical JSON whose digest names it."""
    return canonical({"doc_prior": {f"w{w}": [1.0] * N_DOCS for w in range(n_worlds)}})


def first_weights(spec: RunSpec) -> bytes:
    """Return version 0 of a run's weights: of tasks nothing is learnt, so there are none."""
    return canonical({}) if spec.tasks is not None else initial_weights(spec.n_worlds)
