"""The one way a seed is made, so that a trial draws the same numbers on any machine."""

from __future__ import annotations

import hashlib
import random


def seed(*parts: str, run_seed: int | None = None) -> int:
    """Return the first 32 bits of the SHA-256 of the parts joined by ``|``.

    A run seed, where a run has one, is one part more at the end; ``None`` adds nothing.
    """
    text = "|".join(parts if run_seed is None else (*parts, str(run_seed)))
    return int(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8], 16)


def generator(*parts: str, run_seed: int | None = None) -> random.Random:
    """Return CPython's Mersenne Twister seeded from the parts; the order of its draws matters."""
    return random.Random(seed(*parts, run_seed=run_seed))  # noqa: S311 - replay, not secrecy
