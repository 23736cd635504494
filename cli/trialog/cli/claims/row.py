"""A row of the demo's table, and how a claim makes one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_SHOWN = 3


@dataclass(frozen=True)
class Row:
    """One line of the demo's table."""

    claim: str
    expected: str
    measured: str
    ok: bool
    timed: bool = False
    """Whether it is a limit of time, which a busy machine may miss."""

    def to_json(self) -> dict[str, Any]:
        """Return the row as scripts read it."""
        return asdict(self)


def row(claim: str, expected: object, measured: object, ok: bool | None = None) -> Row:
    """Return a row; without ``ok`` it holds when both texts are equal."""
    return Row(claim, str(expected), str(measured), measured == expected if ok is None else ok)


def within(claim: str, limit: float, measured: float | None, unit: str, missing: str) -> Row:
    """Return a row that holds when a time was measured and is at most the limit, in the same unit;
    ``missing`` is said where there is none."""
    digits = 1 if limit >= 10 else 2
    shown = missing if measured is None else f"{measured:.{digits}f} {unit}"
    ok = measured is not None and measured <= limit
    return Row(claim, f"at most {limit:g} {unit}", shown, ok, timed=measured is not None)


def compare(claim: str, noun: str, expected: Mapping[str, Any], measured: Mapping[str, Any]) -> Row:
    """Compare two mappings key by key; the row names the first keys that differ."""
    differ = sorted(
        key
        for key in expected.keys() | measured.keys()
        if key not in expected or key not in measured or expected[key] != measured[key]
    )
    equal = len(expected.keys() - set(differ))
    text = f"{equal} {noun} equal"
    if differ:
        more = " ..." if len(differ) > _SHOWN else ""
        text += f", not: {' '.join(differ[:_SHOWN])}{more}"
    return row(claim, f"{len(expected)} {noun} equal", text, not differ and bool(expected))
