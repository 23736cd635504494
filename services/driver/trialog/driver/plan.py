"""What a fork would cost: its actions counted before any of them is done. Pure.

The plan is what decide would answer: each step is decided with its lineage, and what is recovered
is folded as if it were recorded, until a step has something to execute. What follows from that step
depends on its outcome and is unknown yet, with an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trialog.driver.state import RunState
from trialog.proto import events as ev
from trialog.proto.keys import HOLISTIC

KINDS: Final = ("build_world", "generate", "verify", "judge_call", "judge", "train_step")
_MOST_ROWS = 1000
_UNRECORDED = "its ancestors have not recorded it"
_ANEW = "its trajectory is generated anew"


@dataclass(slots=True)
class Count:
    """Actions of one kind in one step. ``reasons`` are those of what is not recovered."""

    recovered: int = 0
    executed: int = 0
    unknown: int = 0
    reasons: dict[str, None] = field(default_factory=dict[str, None])

    def execute(self, n: int, reasons: Iterable[str]) -> None:
        """Count actions that are done again, and say why."""
        if n:
            self.executed += n
            self.reasons |= dict.fromkeys(reasons)

    def guess(self, n: int, reason: str) -> None:
        """Count actions that may have to be done."""
        if n:
            self.unknown += n
            self.reasons[reason] = None

    def shown(self) -> dict[str, Any]:
        """Return it as a document."""
        return {
            "recovered": self.recovered,
            "executed": self.executed,
            "unknown": self.unknown,
            "reasons": list(self.reasons),
        }


@dataclass(slots=True)
class StepPlan:
    """One step, or a range of later ones that all depend on an earlier step."""

    step: int
    until: int
    actions: dict[str, Count] = field(default_factory=lambda: {kind: Count() for kind in KINDS})


@dataclass(frozen=True, slots=True)
class CallCost:
    """What recorded calls for one criterion took, in all."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost_microusd: int


class Plan:
    """A plan in the making. ``changes`` are the reasons by kind why keys differ from the
    parent's."""

    def __init__(self, state: RunState, changes: Mapping[str, Sequence[str]]) -> None:
        self._spec, self._trains = state.spec, state.trains and not state.rescoring
        self._changes = changes
        self.steps: list[StepPlan] = []
        # Calls to be made by criterion: for certain, and perhaps.
        self._certain: dict[str, int] = {}
        self._perhaps: dict[str, int] = {}
        rubric = state.spec.resolved_rubric
        asked = [each.name for each in rubric.criteria if each.check is None]
        self._asked = [HOLISTIC] if asked and rubric.scoring == "holistic" else asked

    def add_step(
        self,
        number: int,
        facts: Sequence[ev.Fact],
        calls: Mapping[str, Sequence[tuple[str, bool]]],
        closed: bool,
        unrequested: int,
        trained_before: bool,
    ) -> None:
        """Count a step from what decide answers, and those after it that are recovered whole with
        it. ``calls``: of each judgment to be made, its calls as (criterion, on the log already).
        ``closed``: all of it is recovered. ``trained_before``: an ancestor that trains as this run
        does may have a result of it, which stands where the judgments come out the same."""
        row = StepPlan(number, number)
        for fact in facts:
            if isinstance(fact, ev.StepApplied) and fact.whole and fact.step > number:
                self.steps.append(row)
                row = StepPlan(fact.step, fact.step)
            self._count(row, fact, calls)
        if unrequested:
            self._guess(row, unrequested, "its world is built anew")  # it may come out as it was
        if not closed and self._trains and not row.actions["train_step"].executed:
            if trained_before:
                row.actions["train_step"].guess(1, "its judgments are made anew")
            else:
                row.actions["train_step"].execute(1, self._why("train_step", _UNRECORDED))
        self.steps.append(row)

    def add_rest(self, first: int) -> None:
        """Count the steps that depend on the step before ``first``."""
        last = self._spec.n_steps - 1
        reason = f"weights digest changed since step {first - 1}"
        trials = self._spec.trials_per_step
        shown = min(last, first + _MOST_ROWS - 1)
        for number in range(first, shown + 1):
            self.steps.append(self._unknown(number, number, trials, reason))
        if shown < last:
            self.steps.append(self._unknown(shown + 1, last, trials * (last - shown), reason))

    def _count(
        self, row: StepPlan, fact: ev.Fact, calls: Mapping[str, Sequence[tuple[str, bool]]]
    ) -> None:
        match fact:
            case ev.WorldRequested():
                self._one(row, "build_world", fact.settled, _UNRECORDED)
            case ev.TrialRequested():
                self._one(row, "generate", fact.settled, _UNRECORDED)
                if not fact.settled:
                    self._guess_after(row)
            case ev.TrajectoryRecorded():
                self._one(row, "verify", fact.settled, _UNRECORDED)
                if not fact.settled:
                    self._judge_anew(row, "it is verified anew")
            case ev.TrialVerified(trial_id=trial):
                self._one(row, "judge", fact.settled, _UNRECORDED)
                for criterion, there in calls.get(trial, ()):
                    self._call(row, criterion, there, self._why("judge_call", _UNRECORDED))
            case ev.Judged(bill=bill):
                row.actions["judge_call"].recovered += bill.calls
            case ev.StepApplied(whole=True):
                for kind in ("generate", "verify", "judge"):
                    row.actions[kind].recovered += fact.n_trials
                row.actions["judge_call"].recovered += fact.bill.calls
                row.actions["train_step"].recovered += int(fact.trained)
            case ev.StepRequested():
                self._one(row, "train_step", fact.settled, _UNRECORDED)
            case _:
                pass

    def _one(self, row: StepPlan, kind: str, recovered: bool, otherwise: str) -> None:
        if recovered:
            row.actions[kind].recovered += 1
        else:
            row.actions[kind].execute(1, self._why(kind, otherwise))

    def _why(self, kind: str, otherwise: str) -> Sequence[str]:
        return self._changes.get(kind) or [otherwise]

    def _guess_after(self, row: StepPlan) -> None:
        """A trial is tried anew: whether the rest of it is there already depends on what comes
        out."""
        reason = _ANEW if self._changes.get("generate") else _UNRECORDED
        self._guess(row, 1, reason, ("verify", "judge"))

    def _judge_anew(self, row: StepPlan, reason: str) -> None:
        """The judgment is made; whether its calls are depends on what comes out: the tree may have
        asked the same."""
        row.actions["judge"].execute(1, [reason])
        self._guess(row, 1, reason, kinds=())

    def _call(self, row: StepPlan, criterion: str, there: bool, reasons: Sequence[str]) -> None:
        if there:
            row.actions["judge_call"].recovered += 1
        else:
            row.actions["judge_call"].execute(1, reasons)
            self._certain[criterion] = self._certain.get(criterion, 0) + 1

    def _unknown(self, first: int, last: int, trials: int, reason: str) -> StepPlan:
        row = StepPlan(first, last)
        self._guess(row, trials, reason)
        row.actions["train_step"].guess(last - first + 1, reason)
        return row

    def _guess(
        self,
        row: StepPlan,
        trials: int,
        reason: str,
        kinds: Sequence[str] = ("generate", "verify", "judge"),
    ) -> None:
        """Count what some trials may need of these kinds, and the calls of judging them."""
        for kind in kinds:
            row.actions[kind].guess(trials, reason)
        row.actions["judge_call"].guess(trials * len(self._asked), reason)
        for criterion in self._asked:
            self._perhaps[criterion] = self._perhaps.get(criterion, 0) + trials

    def shown(self, costs: Mapping[str, CallCost]) -> dict[str, Any]:
        """Return totals, steps and the estimate. ``costs``: recorded calls by criterion."""
        totals = {
            kind: {
                "recovered": sum(row.actions[kind].recovered for row in self.steps),
                "executed": sum(row.actions[kind].executed for row in self.steps),
                "unknown": sum(row.actions[kind].unknown for row in self.steps),
            }
            for kind in KINDS
        }
        steps = [
            {
                "step": row.step,
                "until": row.until,
                "actions": {kind: count.shown() for kind, count in row.actions.items()},
            }
            for row in self.steps
        ]
        return {"totals": totals, "steps": steps, "estimate": self._estimate(costs)}

    def _estimate(self, costs: Mapping[str, CallCost]) -> dict[str, Any]:
        """Return what the calls would cost, at the mean of those recorded: of the same criterion,
        or of all where it has none."""
        least, most = self._certain, dict(self._certain)
        for criterion, n in self._perhaps.items():
            most[criterion] = most.get(criterion, 0) + n
        known = sum(cost.calls for cost in costs.values())
        estimate: dict[str, Any] = {
            "judge_calls": {"at_least": sum(least.values()), "at_most": sum(most.values())}
        }
        if not sum(most.values()):
            nothing = {"at_least": 0, "at_most": 0}
            basis = "nothing: no judge is to be asked"
            return estimate | {"tokens": nothing, "usd": nothing, "basis": basis}
        if not known:
            basis = "no judge call is recorded that tokens and cost could be estimated from"
            return estimate | {"tokens": None, "usd": None, "basis": basis}
        tokens = [_sum(costs, n, _tokens) for n in (least, most)]
        usd = [_sum(costs, n, _microusd) / 1_000_000 for n in (least, most)]
        calls = "1 recorded call" if known == 1 else f"{known} recorded calls"
        return estimate | {
            "tokens": {"at_least": round(tokens[0]), "at_most": round(tokens[1])},
            "usd": {"at_least": round(usd[0], 6), "at_most": round(usd[1], 6)},
            "basis": f"the mean by criterion of {calls}{_lacking(costs, most)}",
        }


def _lacking(costs: Mapping[str, CallCost], calls: Mapping[str, int]) -> str:
    """Say of which criteria no call is recorded."""
    names = sorted(set(calls) - set(costs))
    return f"; of all of them for {', '.join(names)}, which has none" if names else ""


def _tokens(cost: CallCost) -> int:
    return cost.prompt_tokens + cost.completion_tokens


def _microusd(cost: CallCost) -> int:
    return cost.cost_microusd


def _sum(costs: Mapping[str, CallCost], calls: Mapping[str, int], amount: Any) -> float:
    """Return calls x the mean amount of recorded calls of the same criterion."""
    every = CallCost(
        sum(cost.calls for cost in costs.values()),
        sum(cost.prompt_tokens for cost in costs.values()),
        sum(cost.completion_tokens for cost in costs.values()),
        sum(cost.cost_microusd for cost in costs.values()),
    )
    total = 0.0
    for criterion, n in calls.items():
        like = costs.get(criterion, every)
        total += n * amount(like) / like.calls
    return total
