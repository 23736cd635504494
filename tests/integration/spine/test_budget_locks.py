"""Budgets under many writers: never overdrawn, and no circle of locks is closed."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import AsyncGenerator

import pytest
from support import facts as f
from support.logs import PostgresLedger, postgres_ledger
from support.stack import StackThread
from trialog.proto import events as ev
from trialog.proto.ids import run_id_from
from trialog.proto.work import CALL, call_work_key
from trialog.spine.budget import NOTHING, Amount, Cost
from trialog.spine.log import Append, Claim, Fail, Finish, NewWork, new_event
from trialog.spine.postgres.log import PostgresLog

WORST, PAID = Cost(100, 1000), Cost(60, 500)


@pytest.fixture
async def ledger(stack: StackThread) -> AsyncGenerator[PostgresLedger]:
    """A partition of the test's own."""
    async for found in postgres_ledger(stack):
        yield found


async def asked(ledger: PostgresLedger, log: PostgresLog, n: int, calls: int) -> list[str]:
    """Ask for so many runs of one tree, each with a budget; return them in the order of ids."""
    runs = sorted(run_id_from(os.urandom(16)) for _ in range(n))
    for run in runs:
        spec = f.run_requested(run, budget={"judge_calls": calls}).spec
        request = ev.RunRequested(spec, ledger.run_id, "w")
        await log.commit(Append([new_event(run, request, partition=ledger.partition)]))
    return runs


def claim(ledger: PostgresLedger, run: str, name: str) -> Claim:
    started = ev.JudgeCallStarted("s0-p0-n0", name, 1, "*", "m")
    event = new_event(run, started, partition=ledger.partition)
    key = call_work_key(ledger.run_id, name)
    return Claim(key, 60_000, 0, [event], NewWork(CALL, run, WORST))


def resumption(ledger: PostgresLedger, run: str, n: int, calls: int) -> Append:
    facts = [ev.RunPaused(n), ev.RunResumed(n, {"judge_calls": calls})]
    return Append([new_event(run, fact, partition=ledger.partition) for fact in facts])


async def test_calls_set_free_without_a_fact_meet_resumes_beside_claims(
    ledger: PostgresLedger, caplog: pytest.LogCaptureFixture
) -> None:
    """The first take several budgets and no head; the others a head, and budgets of both ends."""
    claiming, freeing, other = (ledger.open() for _ in range(3))
    runs = await asked(ledger, claiming, 6, 10_000)
    with caplog.at_level(logging.WARNING):
        for turn in range(25):
            names = [(run, f"t{turn}-{run}-{n}") for run in runs for n in range(8)]
            held = await asyncio.gather(
                *(claiming.commit(claim(ledger, run, name)) for run, name in names)
            )
            assert {verdict.answer for verdict in held} == {"ok"}
            fails = [Fail(call_work_key(ledger.run_id, name), 1) for _, name in names]
            more = [claim(ledger, runs[-1], f"more-{turn}-{n}") for n in range(20)]
            await asyncio.gather(
                *(freeing.commit(fail) for fail in fails),
                *(other.commit(member) for member in more),
                other.commit(resumption(ledger, runs[0], turn, 10_000 + turn)),
            )
    assert [r.getMessage() for r in caplog.records if "unavailable" in r.getMessage()] == []
    last = await claiming.budget(runs[-1])
    assert last is not None and (last.spent, last.reserved.calls) == (NOTHING, 500)


async def test_judges_of_several_processes_never_overdraw_while_limits_move(
    ledger: PostgresLedger, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls of one tree's runs end with a fact and without one, in batches that hold several runs'
    budgets, while resumes set the limits of others."""
    with caplog.at_level(logging.WARNING):
        await _storm(ledger)
    assert [r.getMessage() for r in caplog.records if "unavailable" in r.getMessage()] == []


async def _storm(ledger: PostgresLedger) -> None:
    draw = random.Random(7)
    logs = [ledger.open() for _ in range(4)]
    runs = await asked(ledger, logs[0], 5, 10)
    limit = dict.fromkeys(runs, 10)

    async def call(log: PostgresLog, n: int) -> str:
        run, name = draw.choice(runs), f"c{n}"
        key = call_work_key(ledger.run_id, name)
        verdict = await log.commit(claim(ledger, run, name))
        if verdict.ok and draw.random() < 0.4:
            await log.commit(Fail(key, verdict.fence))
            return "never made"
        if verdict.ok:
            reply = new_event(run, f.judge_call(name), partition=ledger.partition)
            (await log.commit(Finish(key, verdict.fence, [reply], paid=PAID))).check()
            made[run] += 1
        return verdict.answer

    async def resume(n: int) -> None:
        run = draw.choice(runs)
        limit[run] += 10
        await logs[n % 4].commit(resumption(ledger, run, n, limit[run]))

    made = dict.fromkeys(runs, 0)
    answers: list[str] = []
    for turn in range(12):
        calls = [call(logs[n % 4], turn * 60 + n) for n in range(60)]
        answers += [a for a in await asyncio.gather(*calls, resume(turn)) if a]
        for run in runs:
            budget = await logs[0].budget(run)
            assert budget is not None and budget.reserved == NOTHING
            assert budget.spent == Amount(made[run], 60 * made[run], 500 * made[run])
            assert made[run] <= limit[run] == budget.limits.calls
    assert {"ok", "unfunded", "never made"} <= set(answers)
