"""Budgets in memory and in Postgres: no claim is granted that a run's limits have no room for."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest
from support import facts as f
from support.logs import AnyLog, Ledger
from trialog.proto import events as ev
from trialog.proto.ids import run_id_from
from trialog.proto.work import CALL, call_work_key
from trialog.spine.budget import MAX_COST, Amount, Budget, Cost, Limits
from trialog.spine.log import (
    Append,
    Claim,
    Fail,
    Finish,
    GiveBack,
    InvalidMemberError,
    NewWork,
    Release,
    Renew,
    Verdict,
    new_event,
)

WORST, PAID = Cost(100, 1000), Cost(60, 500)


async def asked(ledger: Ledger, log: AnyLog, **budget: Any) -> None:
    request = f.run_requested(ledger.run_id, budget=budget)
    (await ledger.append(log, request)).check()


def claim(
    ledger: Ledger,
    name: str,
    expect: int = 0,
    worst: Cost = WORST,
    run_id: str | None = None,
    lease_ms: int = 60_000,
) -> Claim:
    run_id = run_id or ledger.run_id
    started = ev.JudgeCallStarted("s0-p0-n0", name, expect + 1, "*", "m")
    event = new_event(run_id, started, partition=ledger.partition)
    return Claim(key(ledger, name), lease_ms, expect, [event], NewWork(CALL, run_id, worst))


def key(ledger: Ledger, name: str) -> str:
    return call_work_key(ledger.run_id, name)


def finish(ledger: Ledger, name: str, fence: int, paid: Cost | None = PAID) -> Finish:
    reply = f.judge_call(name)
    return Finish(key(ledger, name), fence, [ledger.event(reply)], paid=paid)


async def budget(log: AnyLog, ledger: Ledger) -> Budget:
    found = await log.budget(ledger.run_id)
    assert found is not None
    return found


async def test_a_run_that_sets_no_limit_has_no_budget(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    granted = await log.commit(claim(ledger, "a", worst=Cost(MAX_COST, MAX_COST)))
    assert granted.ok
    assert (await log.commit(finish(ledger, "a", granted.fence))).ok
    assert await log.budget(ledger.run_id) is None
    assert await log.budget("r-zzzzzzzzzzzzzzzz") is None


async def test_a_claim_reserves_and_a_finish_spends_what_it_cost(ledger: Ledger) -> None:
    log = ledger.open()
    await asked(ledger, log, judge_calls=10, tokens=1000, usd=0.01)
    granted = await log.commit(claim(ledger, "a"))
    assert granted.ok
    now = await budget(log, ledger)
    assert now == Budget(Limits(10, 1000, 10_000), Amount(), Amount(1, 100, 1000), "running", 0)
    assert (await log.commit(finish(ledger, "a", granted.fence))).ok
    now = await budget(log, ledger)
    assert (now.spent, now.reserved) == (Amount(1, 60, 500), Amount())
    # Sent again after a broken connection it is paid for once.
    assert (await log.commit(finish(ledger, "a", granted.fence))).ok
    assert (await budget(log, ledger)).spent == Amount(1, 60, 500)
    assert (await log.commit(claim(ledger, "a"))).answer == "done"


@pytest.mark.parametrize(
    "limits",
    [{"judge_calls": 2}, {"tokens": 299}, {"usd": 0.002999}],
    ids=["calls", "tokens", "usd"],
)
async def test_what_has_no_room_under_a_limit_is_unfunded(
    ledger: Ledger, limits: dict[str, Any]
) -> None:
    log = ledger.open()
    await asked(ledger, log, **limits)
    first = await log.commit(claim(ledger, "a"))
    assert first.ok
    assert (await log.commit(claim(ledger, "b"))).ok
    before = await ledger.recorded(log)
    refused = await log.commit(claim(ledger, "c"))
    assert refused.answer == "unfunded" and not refused.ok
    assert (await budget(log, ledger)).reserved == Amount(2, 200, 2000)
    assert await ledger.recorded(log) == before, "nothing was started"
    row = await ledger.row(key(ledger, "c"))
    assert (row["fence"], row["incarnation"], row["payer"]) == (0, None, None)
    # What ends for less than it might have cost makes room, but a call is a call.
    await log.commit(finish(ledger, "a", first.fence))
    again = await log.commit(claim(ledger, "c"))
    assert again.answer == ("unfunded" if "judge_calls" in limits else "ok")


async def test_exactly_the_limit_is_within_it(ledger: Ledger) -> None:
    log = ledger.open()
    await asked(ledger, log, judge_calls=1, tokens=100, usd=0.001)
    assert (await log.commit(claim(ledger, "a"))).ok
    assert (await log.commit(claim(ledger, "b", worst=Cost()))).answer == "unfunded"


@pytest.mark.parametrize("limit", [{"judge_calls": 0}, {"tokens": 0}, {"usd": 0.0000009}])
async def test_nothing_is_within_nothing(ledger: Ledger, limit: dict[str, Any]) -> None:
    log = ledger.open()
    await asked(ledger, log, **limit)
    assert (await log.commit(claim(ledger, "a", worst=Cost(1, 1)))).answer == "unfunded"


async def test_an_invalid_reply_is_paid_for_and_a_request_never_sent_is_not(
    ledger: Ledger,
) -> None:
    log = ledger.open()
    await asked(ledger, log, judge_calls=10)
    first = await log.commit(claim(ledger, "a"))
    invalid = f.judge_call("a", valid=False, score=None)
    fail = Fail(key(ledger, "a"), first.fence, [ledger.event(invalid)], paid=PAID)
    assert (await log.commit(fail)).ok
    assert (await budget(log, ledger)).spent == Amount(1, 60, 500)
    second = await log.commit(claim(ledger, "a", first.fence + 1))
    assert (await log.commit(Fail(key(ledger, "a"), second.fence))).ok
    now = await budget(log, ledger)
    assert (now.spent, now.reserved) == (Amount(1, 60, 500), Amount())
    assert (await log.commit(fail)).answer == "lost"
    assert (await budget(log, ledger)).spent == Amount(1, 60, 500)


@pytest.mark.parametrize("member", [Release, GiveBack])
async def test_a_hold_that_is_given_up_otherwise_spends_nothing(
    ledger: Ledger, member: type[Release] | type[GiveBack]
) -> None:
    log = ledger.open()
    await asked(ledger, log, judge_calls=1)
    granted = await log.commit(claim(ledger, "a"))
    assert (await log.commit(member(key(ledger, "a"), granted.fence))).ok
    now = await budget(log, ledger)
    assert (now.spent, now.reserved) == (Amount(), Amount())


async def test_a_call_whose_holder_is_gone_counts_as_it_was_reserved(ledger: Ledger) -> None:
    """Nobody knows whether it was billed. The count is the same before and after the takeover."""
    log, other = ledger.open(), ledger.open()
    await asked(ledger, log, judge_calls=2)
    assert (await log.commit(claim(ledger, "a"))).ok
    await ledger.void(log.incarnation)
    gone = await budget(log, ledger)
    assert (gone.spent, gone.reserved) == (Amount(1, 100, 1000), Amount())
    assert (await other.commit(claim(ledger, "b"))).ok
    assert (await other.commit(claim(ledger, "a", 1))).answer == "unfunded"
    assert (await ledger.row(key(ledger, "a")))["fence"] == 1, "nothing was taken over"
    await ledger.append(log, ev.RunPaused(0), ev.RunResumed(0, {"judge_calls": 3}))
    taken = await other.commit(claim(ledger, "a", 1, worst=Cost(7, 7)))
    assert (taken.answer, taken.lost) == ("ok", 1)
    now = await budget(log, ledger)
    assert (now.spent, now.reserved) == (Amount(1, 100, 1000), Amount(2, 107, 1007))
    assert (await log.commit(finish(ledger, "a", 1))).answer == "lost"
    assert (await budget(log, ledger)).spent == Amount(1, 100, 1000)


async def test_a_holder_thought_gone_that_records_pays_what_it_cost(ledger: Ledger) -> None:
    log = ledger.open()
    await asked(ledger, log, judge_calls=5)
    granted = await log.commit(claim(ledger, "a"))
    await ledger.void(log.incarnation)
    assert (await log.commit(Renew(key(ledger, "a"), granted.fence, 60_000))).ok
    assert (await budget(log, ledger)).reserved == Amount(1, 100, 1000)
    await ledger.void(log.incarnation)
    assert (await log.commit(finish(ledger, "a", granted.fence))).ok
    assert (await budget(log, ledger)).spent == Amount(1, 60, 500)


async def test_who_makes_a_call_pays_and_who_finds_it_does_not(ledger: Ledger) -> None:
    """A fork has a budget of its own, from nothing; what its tree has made costs it none."""
    log = ledger.open()
    await asked(ledger, log, judge_calls=5)
    fork = run_id_from(os.urandom(16))
    settings = f.run_requested(ledger.run_id, budget={"judge_calls": 1}).spec
    request = ev.RunRequested(settings, ledger.run_id, "w", ledger.run_id)
    await log.commit(Append([new_event(fork, request, partition=ledger.partition)]))
    made = await log.commit(claim(ledger, "a"))
    assert (await log.commit(claim(ledger, "a", run_id=fork))).answer == "held"
    await log.commit(finish(ledger, "a", made.fence))
    assert (await log.commit(claim(ledger, "a", run_id=fork))).answer == "done"
    forked = await log.budget(fork)
    assert forked is not None and forked.spent == forked.reserved == Amount()
    # The parent's worker dies; the fork takes the call over and pays for its own alone.
    assert (await log.commit(claim(ledger, "b"))).ok
    await ledger.void(log.incarnation)
    assert (await log.commit(claim(ledger, "b", 1, run_id=fork))).ok
    forked = await log.budget(fork)
    assert forked is not None
    assert (forked.spent, forked.reserved) == (Amount(), Amount(1, 100, 1000))
    assert (await budget(log, ledger)).spent == Amount(2, 160, 1500)
    assert (await log.commit(claim(ledger, "c", run_id=fork))).answer == "unfunded"
    assert (await log.commit(claim(ledger, "c"))).ok


async def test_resuming_with_other_limits_sets_them_whole(ledger: Ledger) -> None:
    log = ledger.open()
    await asked(ledger, log, judge_calls=1, usd=1.0)
    await log.commit(claim(ledger, "a"))
    assert (await log.commit(claim(ledger, "b"))).answer == "unfunded"
    await ledger.append(log, ev.RunPaused(0, "NUL \0 in a reason"))
    assert (await budget(log, ledger)).pauses == 1
    assert (await log.commit(claim(ledger, "b"))).answer == "refused"
    await ledger.append(log, ev.RunResumed(0))
    assert (await budget(log, ledger)).limits == Limits(1, None, 1_000_000)
    await ledger.append(log, ev.RunPaused(1))
    raised = {"judge_calls": 2, "tokens": 5000, "usd": None}
    await ledger.append(log, ev.RunResumed(1, raised))
    now = await budget(log, ledger)
    assert (now.limits, now.pauses, now.run_state) == (Limits(2, 5000, None), 2, "running")
    assert now.reserved == Amount(1, 100, 1000), "what was out stays counted"
    assert (await log.commit(claim(ledger, "b"))).ok
    lifted = dict.fromkeys(raised)
    await ledger.append(log, ev.RunPaused(2), ev.RunResumed(2, lifted))
    assert (await log.commit(claim(ledger, "c"))).ok
    assert (await budget(log, ledger)).reserved == Amount(3, 300, 3000)


async def test_a_budget_that_comes_late_counts_what_was_spent_before(ledger: Ledger) -> None:
    log = ledger.open()
    nothing = {"judge_calls": None, "tokens": None, "usd": None}
    settings = {"budget": nothing, "text": "Postgres has no U+0000: \0"}
    await ledger.append(log, ev.RunRequested(settings, ledger.run_id, "w"))
    for name in ("a", "b", "c"):
        assert (await log.commit(claim(ledger, name))).ok
    await log.commit(finish(ledger, "a", 1))
    found = f.judge_call("z", provenance=ev.Provenance("r", 1))
    await ledger.append(log, found)
    await ledger.append(log, ev.RunPaused(0), ev.RunResumed(0, {"judge_calls": 4}))
    now = await budget(log, ledger)
    assert (now.spent, now.reserved) == (Amount(1, 120, 300), Amount()), "as it was recorded"
    # What was out when the budget came is paid for as it ends, or is lost.
    await log.commit(finish(ledger, "b", 1))
    assert (await budget(log, ledger)).spent == Amount(2, 180, 800)
    await ledger.void(log.incarnation)
    assert (await log.commit(claim(ledger, "c", 1))).ok
    now = await budget(log, ledger)
    assert (now.spent, now.reserved) == (Amount(3, 280, 1800), Amount(1, 100, 1000))


async def test_replies_of_a_paused_or_ended_run_are_recorded_and_paid(ledger: Ledger) -> None:
    log = ledger.open()
    await asked(ledger, log, judge_calls=2)
    for name in ("a", "b"):
        assert (await log.commit(claim(ledger, name))).ok
    await ledger.append(log, ev.RunPaused(0))
    assert (await log.commit(finish(ledger, "a", 1))).ok
    await ledger.append(log, ev.RunCancelled())
    assert (await log.commit(finish(ledger, "b", 1))).ok
    assert (await budget(log, ledger)).spent == Amount(2, 120, 1000)
    assert (await budget(log, ledger)).run_state == "ended"


@pytest.mark.parametrize("cost", [Cost(-1, 0), Cost(0, -1), Cost(MAX_COST + 1, 0)])
async def test_costs_that_cannot_be_kept_are_refused(ledger: Ledger, cost: Cost) -> None:
    log = ledger.open()
    await asked(ledger, log, judge_calls=2)
    for member in (claim(ledger, "a", worst=cost), finish(ledger, "a", 1, cost)):
        with pytest.raises(InvalidMemberError):
            await log.commit(member)


async def test_the_largest_costs_do_not_overflow(ledger: Ledger) -> None:
    log = ledger.open()
    await asked(ledger, log, tokens=2**53, usd=1e9)
    most = Cost(MAX_COST, MAX_COST)
    for n in range(20):
        granted = await log.commit(claim(ledger, f"c{n}", worst=most))
        assert granted.ok
        await log.commit(finish(ledger, f"c{n}", granted.fence, most))
    assert (await budget(log, ledger)).spent == Amount(20, 20 * MAX_COST, 20 * MAX_COST)


async def test_claims_of_one_batch_share_what_is_left(ledger: Ledger) -> None:
    log = ledger.open()
    await asked(ledger, log, judge_calls=7)
    claims = (log.commit(claim(ledger, f"c{n}")) for n in range(30))
    answers = [verdict.answer for verdict in await asyncio.gather(*claims)]
    assert sorted(set(answers)) == ["ok", "unfunded"] and answers.count("ok") == 7


@pytest.mark.parametrize("seed", range(4))
async def test_any_walk_of_calls_stays_within_the_limits(ledger: Ledger, seed: int) -> None:
    """Against a model that keeps each call by itself."""
    draw = random.Random(seed)
    logs = [ledger.open() for _ in range(3)]
    await asked(ledger, logs[0], judge_calls=40, tokens=2500, usd=0.05)
    limits = Limits(40, 2500, 50_000)
    out: dict[str, tuple[int, int, Cost]] = {}
    lost: dict[str, tuple[int, Cost]] = {}
    free: dict[str, int] = dict.fromkeys("abcdefgh", 0)
    spent = Amount()
    answers: set[str] = set()
    for turn in range(150):
        names = sorted({*out, *lost, *free})
        name, who = draw.choice(names), draw.randrange(3)
        worst = Cost(draw.randrange(120), draw.randrange(2000))
        if name in out:
            fence, holder, reserved = out.pop(name)
            paid = Cost(draw.randint(0, reserved.tokens), draw.randint(0, reserved.microusd))
            match draw.randrange(4):
                case 0:
                    # A new name, since this one is done.
                    assert (await logs[holder].commit(finish(ledger, name, fence, paid))).ok
                    free[f"n{turn}"] = 0
                    spent = spent.plus(Amount(1, *paid))
                case 1:
                    assert (await logs[holder].commit(Fail(key(ledger, name), fence))).ok
                    free[name] = fence + 1
                case 2:
                    fail = Fail(key(ledger, name), fence, paid=paid)
                    assert (await logs[holder].commit(fail)).ok
                    free[name] = fence + 1
                    spent = spent.plus(Amount(1, *paid))
                case _:
                    await ledger.void(logs[holder].incarnation)
                    out[name] = (fence, holder, reserved)
                    for gone in [n for n, (_, by, _) in out.items() if by == holder]:
                        lost_fence, _, was = out.pop(gone)
                        lost[gone] = (lost_fence, was)
                        spent = spent.plus(Amount(1, *was))
        else:
            fence = lost[name][0] if name in lost else free[name]
            verdict: Verdict = await logs[who].commit(claim(ledger, name, fence, worst))
            reserved = Amount()
            for _, _, was in out.values():
                reserved = reserved.plus(Amount(1, *was))
            after = spent.plus(reserved).plus(Amount(1, *worst))
            fits = all(a <= limit for a, limit in zip(after, limits, strict=True) if limit)
            assert verdict.answer == ("ok" if fits else "unfunded")
            answers.add(verdict.answer)
            if verdict.ok:
                lost.pop(name, None)
                free.pop(name, None)
                out[name] = (verdict.fence, who, worst)
        now = await budget(logs[0], ledger)
        held = Amount()
        for _, _, was in out.values():
            held = held.plus(Amount(1, *was))
        assert (now.spent, now.reserved) == (spent, held), turn
    assert answers == {"ok", "unfunded"}, "else the walk showed nothing"
