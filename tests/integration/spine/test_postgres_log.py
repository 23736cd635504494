"""The log in Postgres: many writers, broken connections, bad data, and who may write at all."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import asyncpg
import pytest
from support import facts as f
from support.logs import PostgresLedger, postgres_ledger
from support.proxy import lossy
from support.stack import StackThread
from trialog.proto import events as ev
from trialog.spine.database import Database, connect
from trialog.spine.log import (
    Append,
    Claim,
    Fail,
    Finish,
    InvalidMemberError,
    NewEvent,
    Recorded,
    Renew,
)
from trialog.spine.postgres import queries
from trialog.spine.postgres.batch import batch_arguments
from trialog.spine.postgres.log import PostgresLog

TRIAL = "s0-p0-n0"


@pytest.fixture
async def ledger(stack: StackThread) -> AsyncGenerator[PostgresLedger]:
    async for found in postgres_ledger(stack):
        yield found


async def test_four_writers_leave_no_gap_and_a_reader_misses_nothing(
    ledger: PostgresLedger, stack: StackThread
) -> None:
    """I1: who read up to a position has seen all below it, whatever commits beside."""
    engines = [Database(stack.database_url) for _ in range(4)]
    logs = [PostgresLog(database, n + 1) for n, database in enumerate(engines)]
    await ledger.begin(logs[0])
    seen: list[Recorded] = []
    total = 1 + 4 * 150

    async def follow() -> None:
        while len(seen) < total:
            seen.extend(await ledger_log.read(ledger.partition, len(seen), 50))

    async def write(log: PostgresLog, writer: int, n: int) -> None:
        skipped = ev.TrialSkipped(f"s{writer}-p{n}-n0", writer, "test", "x" * 500)
        (await ledger.append(log, skipped)).check()

    ledger_log = ledger.open()
    reading = asyncio.create_task(follow())
    await asyncio.gather(*(write(log, w, n) for w, log in enumerate(logs) for n in range(150)))
    await asyncio.wait_for(reading, 30)
    assert [event.position for event in seen] == list(range(1, total + 1))
    assert len({event.event_id for event in seen}) == total
    assert [e.recorded_at for e in seen] == sorted(e.recorded_at for e in seen)
    assert await ledger_log.broken_link(ledger.partition, 0, total) is None
    for log, database in zip(logs, engines, strict=True):
        await log.close()
        await database.dispose()


async def test_writers_of_the_same_facts_record_them_once(ledger: PostgresLedger) -> None:
    """Two drivers that decide the same: whoever is first, both go on."""
    logs = [ledger.open() for _ in range(4)]
    await ledger.begin(logs[0])
    facts = [f.trial_requested(f"s0-p{n}-n0") for n in range(50)]
    verdicts = await asyncio.gather(*(ledger.append(log, fact) for fact in facts for log in logs))
    assert {verdict.answer for verdict in verdicts} == {"ok"}
    assert await logs[0].end(ledger.partition) == 51
    assert len(await logs[0].open_work(ledger.partition, 0, 100)) == 50


async def test_one_of_many_claims_is_granted(ledger: PostgresLedger) -> None:
    logs = [ledger.open() for _ in range(4)]
    await ledger.begin(logs[0])
    facts = [f.trial_requested(f"s0-p{n}-n0") for n in range(25)]
    await ledger.append(logs[0], *facts)
    for fact in facts:
        claims = (log.commit(Claim(ledger.key(fact), 60_000)) for log in logs)
        answers = sorted(verdict.answer for verdict in await asyncio.gather(*claims))
        assert answers == ["held", "held", "held", "ok"]


async def test_a_finish_whose_answer_got_lost_is_done_once_and_said_to_be(
    ledger: PostgresLedger, stack: StackThread
) -> None:
    async with lossy(stack.database_url) as (proxy, url):
        database = Database(url)
        log = PostgresLog(database, 4711)
        await ledger.begin(log)
        key, fence = await ledger.held(log, f.trial_requested(TRIAL))
        lost_blob = os.urandom(1000)
        proxy.lose_answer_to(lost_blob)
        finish = Finish(key, fence, [ledger.event(f.trajectory(TRIAL))], [lost_blob])
        append = Append([ledger.event(f.trial_requested("s0-p1-n0"))])
        done, appended = await asyncio.gather(log.commit(finish), log.commit(append))
        assert proxy.lost == 1
        assert (done.answer, appended.answer) == ("ok", "ok")
        facts = await ledger.recorded(log)
        assert facts == [
            f.trial_requested(TRIAL),
            f.trajectory(TRIAL),
            f.trial_requested("s0-p1-n0"),
        ]
        await log.close()
        await database.dispose()


async def test_a_claim_whose_answer_got_lost_is_nobodys_until_its_lease_ends(
    ledger: PostgresLedger, stack: StackThread
) -> None:
    async with lossy(stack.database_url) as (proxy, url):
        database = Database(url)
        log = PostgresLog(database, 4712)
        await ledger.begin(log, f.trial_requested(TRIAL))
        key = ledger.key(f.trial_requested(TRIAL))
        proxy.lose_answer_to(key.encode())
        assert (await log.commit(Claim(key, 300))).answer == "held"
        assert proxy.lost == 1
        await ledger.lapse(key)
        assert (await log.commit(Claim(key, 300))).answer == "stale"
        await log.close()
        await database.dispose()


async def test_data_that_postgres_refuses_fails_its_member_alone(ledger: PostgresLedger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    good = [ledger.event(f.trial_requested(f"s0-p{n}-n0")) for n in range(6)]
    broken = [
        _changed(good[4], data="{not json"),
        _changed(good[5], run_id="nul\0"),
        _changed(good[5], type="lone \ud800"),
        _changed(good[5], schema_version=2**40),
    ]
    members = [Append([event]) for event in [*good[:2], *broken, *good[2:4]]]
    results = await asyncio.gather(*map(log.commit, members), return_exceptions=True)
    kinds = ["ok" if not isinstance(r, BaseException) else type(r) for r in results]
    assert kinds == ["ok", "ok", *[InvalidMemberError] * 4, "ok", "ok"]
    assert len(await ledger.recorded(log)) == 4
    assert await log.broken_link(ledger.partition, 0, 100) is None


def _changed(event: NewEvent, **columns: Any) -> NewEvent:
    return dataclasses.replace(event, event_id=uuid.uuid4(), **columns)


async def test_members_of_a_busy_process_share_transactions(ledger: PostgresLedger) -> None:
    log = ledger.open()
    facts = [f.trial_requested(f"s0-p{n}-n0") for n in range(300)]
    await ledger.begin(log)
    await asyncio.gather(*(ledger.append(log, fact) for fact in facts))
    times = {e.recorded_at for e in await log.read(ledger.partition, 1, 400)}
    assert len(times) <= 5


async def test_a_cancelled_caller_does_not_take_back_what_is_on_its_way(
    ledger: PostgresLedger,
) -> None:
    log = ledger.open()
    await ledger.begin(log)
    writing = asyncio.create_task(ledger.append(log, f.trial_requested(TRIAL)))
    await asyncio.sleep(0)
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    await log.close()
    assert await ledger.recorded(ledger.open()) == [f.trial_requested(TRIAL)]


WRITES = {
    "insert": "insert into event select * from event limit 1",
    "update": "update event set data = '{}'",
    "delete": "delete from event",
    "truncate": "truncate event",
    "work": "update work set fence = 0",
    "head": "update head set position = 0",
    "run": "delete from run",
    "blob": "delete from blob",
    "cursor": "update cursor set position = 0",
    "drop": "drop table event",
    "trigger": "alter table event disable trigger all",
    "replace": "create or replace function public.refuse_change() returns trigger"
    " language plpgsql as 'begin return null; end'",
    "new": "create table public.mine (x int)",
}


@pytest.mark.parametrize("statement", WRITES.values(), ids=WRITES)
async def test_a_service_may_read_and_call_functions_and_nothing_else(
    stack: StackThread, statement: str
) -> None:
    """I1."""
    connection = await connect(stack.database_url)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)
    await connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "update event set data = '{}' where partition = $1",
        "delete from event where partition = $1",
        "truncate event",
    ],
)
async def test_even_the_owner_changes_no_event_by_accident(
    ledger: PostgresLedger, stack: StackThread, statement: str
) -> None:
    await ledger.begin(ledger.open())
    owner = await connect(stack.admin_database_url)
    arguments = [ledger.partition] if "$1" in statement else []
    with pytest.raises(asyncpg.RaiseError, match="append-only"):
        await owner.execute(statement, *arguments)
    await owner.close()


async def test_a_temporary_table_does_not_stand_in_for_ours(
    ledger: PostgresLedger, stack: StackThread
) -> None:
    """Its trigger would run with the rights of the functions' owner."""
    await ledger.begin(ledger.open())
    connection = await connect(stack.database_url)
    for statement in (
        "create temporary table event (like public.event)",
        "create temporary table head (like public.head)",
        "create function pg_temp.strike() returns trigger language plpgsql as"
        " 'begin alter table public.event disable trigger all; return new; end'",
        "create trigger strike before insert on pg_temp.event"
        " for each row execute function pg_temp.strike()",
    ):
        await connection.execute(statement)
    arguments = batch_arguments(1, [Append([ledger.event(f.trial_requested(TRIAL))])])
    (row,) = await connection.fetch(queries.COMMIT_BATCH, *arguments)
    assert row["verdict"] == "ok"
    assert await connection.fetchval("select count(*) from pg_temp.event") == 0
    await connection.close()
    assert await ledger.recorded(ledger.open()) == [f.trial_requested(TRIAL)]
    owner = await connect(stack.admin_database_url)
    with pytest.raises(asyncpg.RaiseError, match="append-only"):
        await owner.execute("delete from event where partition = $1", ledger.partition)
    await owner.close()


async def test_every_function_with_its_owners_rights_looks_in_public_only(
    ledger: PostgresLedger, stack: StackThread
) -> None:
    owner = await connect(stack.admin_database_url)
    rows = await owner.fetch(
        "select proname, proconfig, prosecdef from pg_proc"
        " where pronamespace = 'public'::regnamespace"
    )
    await owner.close()
    loose = {
        row["proname"]
        for row in rows
        if row["prosecdef"] and "search_path=pg_catalog, public, pg_temp" not in row["proconfig"]
    }
    assert loose == set()
    # A trigger's, and a part of commit_batch: a service that calls it may write nothing with it.
    without = {row["proname"] for row in rows if not row["prosecdef"]}
    assert without == {"refuse_change", "set_budget"}
    service = await connect(stack.database_url)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        limits = '{"budget": {"judge_calls": 1}}'
        await service.execute("select set_budget($1, 'RunResumed', $2)", ledger.run_id, limits)
    await service.close()


async def test_renewals_do_not_wait_behind_a_crowd(ledger: PostgresLedger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, f.trial_requested(TRIAL))
    order: list[str] = []

    async def note(name: str, member: Append | Renew) -> None:
        await log.commit(member)
        order.append(name)

    crowd = [
        note("append", Append([ledger.event(f.trial_requested(f"s1-p{n}-n0", 1))]))
        for n in range(600)
    ]
    tasks = [asyncio.create_task(one) for one in crowd]
    await asyncio.sleep(0)
    await asyncio.gather(note("renew", Renew(key, fence, 60_000)), *tasks)
    assert order.index("renew") <= 256 + 256


async def test_a_failed_batch_leaves_the_log_usable(ledger: PostgresLedger) -> None:
    """Backends that are terminated in the middle cost a retry, nothing else."""
    log = ledger.open()
    await ledger.begin(log)
    killed, trials = 0, 0

    async def strike() -> None:
        nonlocal killed
        while killed < 3:
            struck: Any = await ledger._admin.fetchval(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                " where pid <> pg_backend_pid() and query like '%commit_batch%'"
                " and state = 'active'"
            )
            killed += struck
            await asyncio.sleep(0)

    async def work() -> None:
        nonlocal trials
        while killed < 3:
            trials += 1
            fact = f.trial_requested(f"s0-p{trials}-n0")
            (await ledger.append(log, fact)).check()
            verdict = await log.commit(Claim(ledger.key(fact), 60_000))
            # Held: by us, in a batch whose answer got lost.
            assert verdict.answer in ("ok", "held")
            await log.commit(Fail(ledger.key(fact), verdict.fence))

    await asyncio.gather(strike(), *(work() for _ in range(20)))
    assert len(await ledger.recorded(log)) == trials
    assert await log.broken_link(ledger.partition, 0, 10**6) is None
    async with log.database.connection() as connection:
        held = await connection.fetchval(
            "select count(*) from work where partition = $1 and incarnation is not null",
            ledger.partition,
        )
    assert held == 0
