"""The reference policy's weights: for every world a prior over its documents."""

from __future__ import annotations

from typing import Any

from trialog.proto.canonical import canonical

N_DOCS = 8

Weights = dict[str, Any]


def world_of(prompt: int, n_worlds: int) -> str:
    """Return the world that a prompt of a step plays in."""
    return f"w{prompt % n_worlds}"


def initial_weights(n_worlds: int) -> bytes:
    """Return version 0: 1.0 for every document, as the canonical JSON whose digest names it."""
    return canonical({"doc_prior": {f"w{w}": [1.0] * N_DOCS for w in range(n_worlds)}})
