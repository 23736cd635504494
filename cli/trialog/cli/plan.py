"""The plan of a fork as tables: what would be recovered, executed, and what that would cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trialog.cli import output

if TYPE_CHECKING:
    from trialog.client.fork_models import Estimate, Plan, PlannedActions, PlannedStep, Range

_COUNTS = ("recovered", "executed", "unknown")
_BLANK = " "  # nothing at all is shown as a dash


def print_plan(plan: Plan) -> None:
    """Write a plan for people."""
    kept = f", steps below {plan['from_step']} as they are" if plan["from_step"] else ""
    print(
        f"A fork of {plan['parent']} as it is at position {plan['position']}, "
        f"mode {plan['mode']}{kept}:"
    )
    rows = [row for one in merged(plan["steps"]) for row in _rows(one)]
    totals = [
        ("all" if first else _BLANK, kind, *(counts.get(name, 0) for name in _COUNTS), _BLANK)
        for first, (kind, counts) in _numbered(plan["totals"].items())
    ]
    output.print_table(
        ("step", "action", "recovered>", "executed>", "unknown>", "why not recovered"),
        [*rows, *totals],
        whole=("step", "action"),
    )
    if any(counts["unknown"] for counts in plan["totals"].values()):
        print("unknown: it depends on what is executed first; at most so many are executed too")
    _print_estimate(plan["estimate"])
    print("nothing was started")


@dataclass
class Planned:
    """Steps in a row of which a plan says the same, with their counts added up."""

    first: int
    last: int
    actions: dict[str, PlannedActions]

    @property
    def pattern(self) -> Any:
        """What it says, whatever the numbers."""
        return [
            (kind, [bool(counts[name]) for name in _COUNTS], counts["reasons"])
            for kind, counts in self.actions.items()
        ]

    def add(self, other: Planned) -> None:
        """Take in the steps that come next."""
        self.last = other.last
        for kind, counts in other.actions.items():
            for name in _COUNTS:
                self.actions[kind][name] += counts[name]


def merged(steps: Iterable[PlannedStep]) -> list[Planned]:
    """Return the steps, those in a row of which the same is said as one."""
    found: list[Planned] = []
    for step in steps:
        actions = {kind: counts.copy() for kind, counts in step["actions"].items()}
        one = Planned(step["step"], step["until"], actions)
        if found and found[-1].pattern == one.pattern:
            found[-1].add(one)
        else:
            found.append(one)
    return found


def _rows(planned: Planned) -> Iterator[tuple[object, ...]]:
    """Yield a row for each kind of action that there is; the first names the steps."""
    there = [(k, c) for k, c in planned.actions.items() if any(c[name] for name in _COUNTS)]
    one = planned.first == planned.last
    name = str(planned.first) if one else f"{planned.first}-{planned.last}"
    for first, (kind, counts) in _numbered(there):
        why = "; ".join(counts["reasons"]) or _BLANK
        yield (name if first else _BLANK, kind, *(counts[name] for name in _COUNTS), why)


def _numbered(items: Iterable[Any]) -> Iterator[tuple[bool, Any]]:
    return ((number == 0, item) for number, item in enumerate(items))


def _print_estimate(estimate: Estimate) -> None:
    output.print_fields(
        {
            "judge calls": _between(estimate["judge_calls"], ",.0f"),
            "tokens": _between(estimate["tokens"], ",.0f"),
            "USD": _between(estimate["usd"], ".4f"),
            "estimated by": estimate["basis"],
        }
    )


def _between(found: Range | None, style: str) -> str:
    if found is None:
        return "not known"
    least, most = format(found["at_least"], style), format(found["at_most"], style)
    return least if least == most else f"{least} to {most}"
