"""What a run's judge calls cost, and what it did not have to pay for.

Money is added in whole millionths: sums of floats would depend on their order.
"""

from __future__ import annotations

from trialog.driver.views.documents import Doc
from trialog.proto import events as ev


def new_cost() -> Doc:
    """Return the cost of a run that has done nothing yet."""
    return _nothing() | {
        "saved_by_memo": _nothing(),
        "saved_by_recovery": _nothing(),
        "calls_started": 0,
        "calls_unrecorded": 0,
    }


def call_started(cost: Doc) -> None:
    """A call is about to be made: until its reply is recorded it may have been made or not."""
    cost["calls_started"] += 1
    cost["calls_unrecorded"] += 1


def call_recorded(cost: Doc, fact: ev.JudgeCallRecorded) -> None:
    """A call that was made is paid for, valid or not; a recovered one was paid for elsewhere."""
    if fact.provenance is not None:
        return
    cost["calls_unrecorded"] -= 1
    _add(cost, ev.Bill(1, fact.prompt_tokens, fact.completion_tokens, fact.cost_microusd))


def judged(cost: Doc, fact: ev.Judged) -> None:
    """A judgment made here may rest on replies that were on the log; a recovered one costs nothing
    of what it rests on."""
    if fact.provenance is None:
        _add(cost["saved_by_memo"], fact.memo)
    else:
        _add(cost["saved_by_recovery"], fact.bill)


def step_recovered(cost: Doc, fact: ev.StepApplied) -> None:
    """A step that was recovered whole costs nothing of what its judgments rest on."""
    _add(cost["saved_by_recovery"], fact.bill)


def _nothing() -> Doc:
    return {"judge_calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "usd": 0.0}


def _add(sums: Doc, bill: ev.Bill) -> None:
    sums["judge_calls"] += bill.calls
    sums["prompt_tokens"] += bill.prompt_tokens
    sums["completion_tokens"] += bill.completion_tokens
    sums["usd"] = (round(sums["usd"] * 1_000_000) + bill.cost_microusd) / 1_000_000
