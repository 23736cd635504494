"""Presence: who was killed is missed within a second, who lives is never taken for dead."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from support import facts as f
from support.logs import PostgresLedger, postgres_ledger
from support.stack import StackThread
from support.waiting import eventually
from trialog.spine.database import DOWN, connect
from trialog.spine.log import Claim
from trialog.spine.postgres import queries
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.presence import Presence, new_incarnation

# When a process took its lock and said so: it counts as there from then on.
_JOINED = "select extract(epoch from registered_at) from process where incarnation = $1"
_PROCESS = Path(__file__).with_name("presence_process.py")


class Living:
    """A real process with presence."""

    def __init__(self, process: asyncio.subprocess.Process, incarnation: int) -> None:
        self.process, self.incarnation = process, incarnation

    async def next_life(self) -> int:
        """Return the incarnation that the process says next."""
        assert self.process.stdout is not None
        return int(await asyncio.wait_for(self.process.stdout.readline(), 20))


@contextlib.asynccontextmanager
async def living(stack: StackThread) -> AsyncGenerator[Living]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(_PROCESS), stack.database_url, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield Living(process, int(await asyncio.wait_for(process.stdout.readline(), 30)))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ask(stack: StackThread, query: str, *arguments: object) -> set[Any]:
    """Return the first column, once Postgres answers."""

    async def answer() -> list[set[Any]]:
        try:
            connection = await connect(stack.admin_database_url)
        except DOWN:
            return []
        try:
            return [{row[0] for row in await connection.fetch(query, *arguments)}]
        finally:
            await connection.close()

    return (await eventually(answer))[0]


async def gone(stack: StackThread) -> set[int]:
    return await ask(stack, queries.GONE)


async def present(stack: StackThread) -> set[int]:
    return await ask(stack, queries.PRESENT)


async def test_a_killed_process_is_missed_within_a_second(stack: StackThread) -> None:
    async with living(stack) as one, living(stack) as other:
        assert {one.incarnation, other.incarnation} <= await present(stack)
        assert not {one.incarnation, other.incarnation} & await gone(stack)
        connection = await connect(stack.database_url)
        killed_at = time.monotonic()
        one.process.send_signal(signal.SIGKILL)

        async def missed() -> bool:
            return one.incarnation in {row[0] for row in await connection.fetch(queries.GONE)}

        await eventually(missed, timeout_s=1)
        assert time.monotonic() - killed_at < 1
        assert other.incarnation not in await gone(stack)
        assert one.incarnation not in await present(stack)
        await connection.close()


async def test_a_process_that_stands_still_is_not_gone(stack: StackThread) -> None:
    """Its lock is held by the kernel's connection, not by its attention."""
    async with living(stack) as one:
        one.process.send_signal(signal.SIGSTOP)
        assert one.incarnation not in await gone(stack)
        assert one.incarnation in await present(stack)
        one.process.send_signal(signal.SIGCONT)


async def watch(stack: StackThread, suspect: int, stop: asyncio.Event) -> int:
    """Ask again and again whether the living is gone; return how often there was an answer."""
    answers = 0
    while not stop.is_set():
        with contextlib.suppress(*DOWN):
            connection = await connect(stack.database_url)
            try:
                while not stop.is_set():
                    assert suspect not in {row[0] for row in await connection.fetch(queries.GONE)}
                    answers += 1
            finally:
                connection.terminate()
    return answers


async def crash_backends(stack: StackThread) -> None:
    """Kill one backend: Postgres restarts all of them, and drops every lock."""
    connection = await connect(stack.database_url)
    backend = await connection.fetchval("select pg_backend_pid()")
    assert backend is not None
    await asyncio.to_thread(stack.kill_backend, backend)
    connection.terminate()


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_who_lives_through_a_restart_of_postgres_is_never_gone(
    stack: StackThread, how: str
) -> None:
    """It comes back under the same incarnation, and is missed again when it dies."""
    async with living(stack) as one:
        joined = await ask(stack, _JOINED, one.incarnation)
        stop = asyncio.Event()
        watching = asyncio.create_task(watch(stack, one.incarnation, stop))
        if how == "restart":
            await asyncio.to_thread(stack.restart, "postgres")
        else:
            await crash_backends(stack)

        async def back() -> bool:
            return max(await ask(stack, _JOINED, one.incarnation)) > max(joined)

        await eventually(back)
        stop.set()
        assert await watching > 0
        one.process.kill()

        async def missed() -> bool:
            return one.incarnation in await gone(stack)

        await eventually(missed, timeout_s=5)


async def test_who_lost_its_session_and_was_given_up_begins_another_life(
    stack: StackThread,
) -> None:
    async with living(stack) as one:
        owner = await connect(stack.admin_database_url)
        killed = await owner.fetchval(
            "select count(pg_terminate_backend(l.pid)) from pg_locks l"
            " where l.locktype = 'advisory'"
            " and (l.classid::bigint << 32) | l.objid::bigint = $1",
            one.incarnation,
        )
        assert killed == 1

        async def missed() -> bool:
            return one.incarnation in await gone(stack)

        await eventually(missed)
        await owner.execute(queries.VOID_INCARNATIONS, [one.incarnation])
        await owner.close()
        again = await one.next_life()
        assert again != one.incarnation
        assert {again} == {again, one.incarnation} & await present(stack)


async def test_who_lost_its_session_and_was_not_given_up_stays_who_it_is(
    stack: StackThread,
) -> None:
    changes: list[int] = []
    presence = Presence(stack.database_url, "test", new_incarnation(), changes.append)
    await presence.join()
    before = presence.incarnation
    keeping = asyncio.create_task(presence.keep())
    owner = await connect(stack.admin_database_url)
    locks = (
        "select l.pid from pg_locks l where l.locktype = 'advisory'"
        " and (l.classid::bigint << 32) | l.objid::bigint = $1"
    )
    session = await owner.fetchval(locks, before)
    await owner.execute("select pg_terminate_backend($1)", session)

    async def joined_again() -> bool:
        return await owner.fetchval(locks, before) not in (None, session)

    await eventually(joined_again)
    assert (changes, presence.incarnation) == ([], before)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await presence.leave()

    async def missed() -> bool:
        return before in await gone(stack)

    await eventually(missed)
    await owner.execute(queries.VOID_INCARNATIONS, [before])
    await owner.close()


@pytest.fixture
async def ledger(stack: StackThread) -> AsyncGenerator[PostgresLedger]:
    async for found in postgres_ledger(stack):
        yield found


async def test_the_claims_of_the_killed_are_free_at_once(
    ledger: PostgresLedger, stack: StackThread
) -> None:
    async with living(stack) as one:
        theirs = PostgresLog(ledger.open().database, one.incarnation)
        await ledger.begin(theirs)
        key, _ = await ledger.held(theirs, f.trial_requested("s0-p0-n0"))
        assert (await ledger.open().commit(Claim(key, 1000))).answer == "held"
        one.process.kill()

        async def missed() -> bool:
            return one.incarnation in await gone(stack)

        await eventually(missed)
        await ledger.void(one.incarnation)
        assert (await ledger.open().commit(Claim(key, 1000))).answer == "stale"
        assert one.incarnation not in await gone(stack)
        await theirs.close()
