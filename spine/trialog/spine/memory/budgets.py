"""Budgets in memory: what commit_batch and set_budget do to the table of that name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trialog.proto import events as ev
from trialog.spine.budget import FREE, NOTHING, Amount, Cost, Limits, limits_of
from trialog.spine.log import Claim, Fail, Finish, GiveBack, Recorded, Release, Renew
from trialog.spine.memory.rows import WorkRow


@dataclass(slots=True)
class BudgetRow:
    """A run's limits, what it has spent, and what calls that are out may cost."""

    limits: Limits
    spent: Amount = NOTHING
    reserved: Amount = NOTHING

    def has_room_for(self, cost: Cost) -> bool:
        """Whether a call that may cost so much is within every limit."""
        after = self.spent.plus(self.reserved).plus(Amount(1, *cost))
        return all(
            limit is None or value <= limit for value, limit in zip(after, self.limits, strict=True)
        )


class Budgets:
    """The budgets of the runs that have one."""

    def __init__(self) -> None:
        self.rows: dict[str, BudgetRow] = {}

    def set(self, run_id: str, fact: ev.Fact, recorded: Callable[[], Iterable[Recorded]]) -> None:
        """Set the limits that a fact brings. A run that had none before has spent what its calls
        on the log (``recorded``: its events) cost."""
        match fact:
            case ev.RunRequested(spec=spec):
                setting = spec.get("budget")
            case ev.RunResumed(budget=setting):
                pass
            case _:
                return
        if setting is None:
            return
        limits = limits_of(setting)
        row = self.rows.get(run_id)
        if row is not None:
            row.limits = limits
        elif limits != Limits():
            self.rows[run_id] = BudgetRow(limits, _spent(recorded()))

    def fund(self, claim: Claim) -> bool:
        """Reserve what a claim may cost; False, and nothing reserved, when there is no room."""
        creates = claim.creates
        row = self.rows.get(creates.run_id) if creates is not None else None
        if creates is None or row is None:
            return True
        if not row.has_room_for(creates.worst):
            return False
        row.reserved = row.reserved.plus(Amount(1, *creates.worst))
        return True

    def move(
        self, member: Claim | Finish | Fail | Release | GiveBack | Renew, work: WorkRow
    ) -> None:
        """Settle what the work's last hold had reserved, and note who pays for the next."""
        if isinstance(member, Renew):
            return
        creates = member.creates if isinstance(member, Claim) else None
        payer = self.rows.get(work.payer) if work.payer is not None else None
        if payer is not None:
            paid = _paid(member, work)
            if work.reserved is not None:
                payer.reserved = payer.reserved.minus(Amount(1, *work.reserved))
            if paid is not None:
                payer.spent = payer.spent.plus(Amount(1, *paid))
        work.payer = creates.run_id if creates is not None else None
        has_budget = creates is not None and creates.run_id in self.rows
        work.reserved = creates.worst if creates is not None and has_budget else None


def _paid(member: Claim | Finish | Fail | Release | GiveBack, work: WorkRow) -> Cost | None:
    """Return what a hold that is over did cost. One that was lost: what it had reserved."""
    match member:
        case Claim(creates=creates):
            unknown = creates.worst if creates is not None else FREE
            return unknown if work.reserved is None else work.reserved
        case Finish(paid=paid) | Fail(paid=paid):
            return paid
        case _:
            return None


def _spent(events: Iterable[Recorded]) -> Amount:
    spent = NOTHING
    for event in events:
        if event.type == "JudgeCallRecorded":
            fact = event.fact()
            assert isinstance(fact, ev.JudgeCallRecorded)
            if fact.provenance is None:
                tokens = fact.prompt_tokens + fact.completion_tokens
                spent = spent.plus(Amount(1, tokens, fact.cost_microusd))
    return spent
