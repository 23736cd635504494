"""Judges on a real Postgres that breaks off, before a real judge that counts its calls."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from support.judge_servers import standin
from support.judging import PRICES, TRIAL, Bench, Desk
from support.proxy import lossy
from support.stack import StackThread
from trialog.judge.clients import HttpJudgeClient
from trialog.proto import events as ev
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.database import Database
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.presence import new_incarnation

WITHIN_S = 20


@contextlib.asynccontextmanager
async def process(stack: StackThread, url: str, client: Any) -> AsyncGenerator[Bench]:
    """A judge's process: its own pool, incarnation and calls."""
    database = Database(url)
    log = PostgresLog(database, new_incarnation())
    stack.blob_dir.mkdir(parents=True, exist_ok=True)
    yield Bench(log, PostgresBlobs(database, stack.blob_dir), client)
    await log.close()
    await database.dispose()


@pytest.mark.parametrize("moment", ["JudgeCallStarted", "JudgeCallRecorded"])
async def test_an_answer_of_postgres_that_gets_lost_costs_no_call_and_no_time(
    stack: StackThread, moment: str
) -> None:
    """Claim or record were written and nobody learned of it: neither is a reason to wait for a
    lease's end, which comes after the judgment's limit."""
    desk = Desk()
    async with (
        lossy(stack.database_url) as (proxy, url),
        process(stack, url, desk) as judge,
    ):
        run = await judge.run(timeouts={"judge_s": 5.0})
        held, call = await judge.question(run)
        if moment == "JudgeCallStarted":
            proxy.lose_answer_to(call.key.encode())
        else:
            desk.go_on.clear()
        asking = asyncio.create_task(judge.calls.ask(held, TRIAL, call))
        if moment == "JudgeCallRecorded":
            await desk.asked.get()
            proxy.lose_answer_to(call.key.encode())
            desk.go_on.set()
        answer = await asyncio.wait_for(asking, WITHIN_S)
        assert proxy.lost == 1 and answer.made
        assert await judge.recorded(run) == [answer.reply]
        assert len(await judge.facts(run, ev.JudgeCallStarted)) == len(desk.calls) == 1


async def test_a_reply_outlives_a_postgres_that_is_away_when_it_comes(stack: StackThread) -> None:
    desk = Desk(open_=False)
    async with process(stack, stack.database_url, desk) as judge:
        run = await judge.run()
        question = await judge.question(run)
        asking = asyncio.create_task(judge.ask(question))
        await desk.asked.get()
        restart = asyncio.create_task(
            asyncio.to_thread(functools.partial(stack.restart, "postgres"))
        )
        desk.go_on.set()
        answer = await asyncio.wait_for(asking, 60)
        await restart
        assert answer.made and await judge.recorded(run) == [answer.reply]
        assert not (await judge.ask(question)).made
    assert len(desk.calls) == 1


async def test_the_judges_own_count_of_two_deliveries_and_two_runs_at_once(
    stack: StackThread,
) -> None:
    """Two processes have each of two related runs' judgments in hand, all at one moment."""
    async with standin() as (url, _), contextlib.AsyncExitStack() as open_:
        clients = [HttpJudgeClient(url, prices=PRICES) for _ in range(2)]
        judges = [
            await open_.enter_async_context(process(stack, stack.database_url, client))
            for client in clients
        ]
        root = await judges[0].run(judge_latency_s=0.3)
        fork = await judges[0].run(root, judge_latency_s=0.3)
        questions = [await judges[0].question(run) for run in (root, fork)]
        answers = await asyncio.gather(
            *(judge.ask(question) for question in questions for judge in judges)
        )
        assert [answer.made for answer in answers].count(True) == 1
        assert len({answer.reply.reply for answer in answers}) == 1
        async with httpx.AsyncClient(trust_env=False) as http:
            counted = (await http.get(f"{url}/v1/calls")).json()
        assert counted["by_key"] == {questions[0][1].key: 1}
        started = [len(await judges[0].facts(run, ev.JudgeCallStarted)) for run in (root, fork)]
        assert sum(started) == 1
        for client in clients:
            await client.close()
