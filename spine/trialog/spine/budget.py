"""What a run may spend on its judge calls, and how far it is: what a claim of a call is held to.

    spent + reserved + the worst that this call may cost <= limit, or the claim is *unfunded*

A claim reserves the worst cost; the call's end turns that into what it did cost. A call whose
holder died may have been billed all the same, so what it reserved counts as spent. Only runs that
were given a limit have a budget. See docs/decisions/0023-a-claim-reserves-its-worst-cost.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

MICRO = 1_000_000
# Of one call. What is beyond is counted as so much: the sums must stay within 64 bits.
MAX_COST = 2**42


class Cost(NamedTuple):
    """Of one judge call: tokens, prompt and completion, and millionths of a US dollar."""

    tokens: int = 0
    microusd: int = 0


FREE = Cost()


def cost_of(tokens: int, microusd: int) -> Cost:
    """Return a cost within what can be kept."""
    return Cost(min(tokens, MAX_COST), min(microusd, MAX_COST))


class Limits(NamedTuple):
    """What may be spent in all; None: as much as it takes."""

    calls: int | None = None
    tokens: int | None = None
    microusd: int | None = None


class Amount(NamedTuple):
    """What some calls cost together."""

    calls: int = 0
    tokens: int = 0
    microusd: int = 0

    def plus(self, other: Amount) -> Amount:
        """Return the sum."""
        return Amount(*(mine + more for mine, more in zip(self, other, strict=True)))

    def minus(self, other: Amount) -> Amount:
        """Return the difference."""
        return Amount(*(mine - less for mine, less in zip(self, other, strict=True)))


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Budget:
    """A run's budget as it is now.

    ``spent`` counts calls whose holder is gone as they were reserved, ``reserved`` those that are
    out. ``run_state`` and ``pauses`` (how often it was paused) are of the same moment.
    """

    limits: Limits
    spent: Amount
    reserved: Amount
    run_state: str
    pauses: int


def limits_of(setting: Mapping[str, Any]) -> Limits:
    """Return the limits that a run's ``budget`` setting means; a part of a microdollar is none."""
    usd = setting.get("usd")
    money = None if usd is None else int(Decimal(repr(usd)) * MICRO)
    return Limits(setting.get("judge_calls"), setting.get("tokens"), money)
