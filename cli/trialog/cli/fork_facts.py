"""What the demo's claims about forks are judged by: what API, log and judge say of each.

Pure: everything here is a view of values that were gathered before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from trialog.cli.progress import recorded_at
from trialog.proto.work import GENERATE, JUDGE, TRAIN_STEP

if TYPE_CHECKING:
    from trialog.client.fork_models import Plan
    from trialog.client.models import Event, Run, Trial, Weights

RUBRIC = "v2-efficiency"


class Bill(NamedTuple):
    """Judge calls and what they cost, in millionths of a dollar."""

    calls: int = 0
    microusd: int = 0

    def __add__(self, other: object) -> Bill:
        """Return the sum of two bills."""
        if not isinstance(other, Bill):
            return NotImplemented
        return Bill(self.calls + other.calls, self.microusd + other.microusd)


@dataclass(frozen=True)
class ForkFacts:
    """One fork. ``weights`` by version; ``called`` by call key: how often the judge itself counted
    a call while the fork ran, None when it did not say. Of a fork that was not made or did not
    end, nothing is known."""

    run: Run | None = None
    trials: Mapping[str, Trial] = field(default_factory=dict[str, "Trial"])
    weights: Mapping[int, Weights] = field(default_factory=dict[int, "Weights"])
    events: tuple[Event, ...] = ()
    called: Counter[str] | None = None

    @property
    def n_called(self) -> int | None:
        """How many calls the judge counted."""
        return None if self.called is None else self.called.total()

    def of_type(self, *types: str) -> Iterator[Event]:
        """Yield the events of these types in order of position."""
        return (event for event in self.events if event["type"] in types)

    def counts(self, what: str) -> dict[str, int]:
        """Return how many actions were ``executed`` or ``recovered``, by kind."""
        return {} if self.run is None else dict(self.run["counts"][what])

    def took_s(self) -> float | None:
        """Return recorded seconds from the fork's POST to its completion."""
        ends = list(self.of_type("RunCompleted"))
        if not ends:
            return None
        return (recorded_at(ends[0]) - recorded_at(self.events[0])).total_seconds()

    def shown(self) -> dict[str, Bill]:
        """Return what the run shows that it spent, and saved by memo and by recovery."""
        if self.run is None:
            return {}
        cost = self.run["cost"]
        parts: Mapping[str, Any] = {
            "spent": cost,
            "memo": cost["saved_by_memo"],
            "recovery": cost["saved_by_recovery"],
        }
        return {
            name: Bill(part["judge_calls"], round(part["usd"] * 1_000_000))
            for name, part in parts.items()
        }

    def owed(self) -> Bill:
        """Return what all judgments rest on, whoever paid, by the log; and once more what a
        judgment that failed after its call had paid for: its retry would have had to pay again."""
        total = Bill()
        paid: dict[str, Bill] = {}
        for event in self.events:
            data = event["data"]
            match event["type"]:
                case "JudgeCallRecorded" if not data.get("provenance"):
                    trial = data["trial_id"]
                    paid[trial] = paid.get(trial, Bill()) + Bill(1, data["cost_microusd"])
                case "TrialAttemptFailed" if data["stage"] == JUDGE:
                    total += paid.pop(data["subject"], Bill())
                case "Judged":
                    total += _bill(data)
                case "StepApplied" if data.get("whole"):
                    total += _bill(data)
                case _:
                    pass
        return total


def _bill(data: Mapping[str, Any]) -> Bill:
    bill = data.get("bill", {})
    return Bill(bill.get("calls", 0), bill.get("cost_microusd", 0))


def said(executed: Mapping[str, int]) -> str:
    """Return in few words what was executed, by kind of action."""
    words = {GENERATE: "trial", "judge_call": "call", JUDGE: "judgment", TRAIN_STEP: "step"}
    counts = [(executed.get(kind, 0), word) for kind, word in words.items()]
    return ", ".join(f"{n} {word}{'' if n == 1 else 's'}" for n, word in counts)


@dataclass(frozen=True)
class Forks:
    """The demo's forks of the reference run. ``plan`` is what the dry run of ``changed`` said;
    ``by_criterion`` rescores with a rubric of one call a criterion, ``reweighted`` forks that."""

    plan: Plan | None = None
    changed: ForkFacts = ForkFacts()
    unchanged: ForkFacts = ForkFacts()
    rescored: ForkFacts = ForkFacts()
    by_criterion: ForkFacts = ForkFacts()
    reweighted: ForkFacts = ForkFacts()

    def all(self) -> tuple[ForkFacts, ...]:
        """Return every fork."""
        return (
            self.changed,
            self.unchanged,
            self.rescored,
            self.by_criterion,
            self.reweighted,
        )
