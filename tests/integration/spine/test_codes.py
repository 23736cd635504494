"""What code services run, told through Postgres."""

from __future__ import annotations

import asyncio
import os

import asyncpg
import pytest
from trialog.spine.codes import register, registered
from trialog.spine.database import Database


def names(n: int) -> list[str]:
    return [f"agent:{os.urandom(6).hex()}" for _ in range(n)]


async def test_the_latest_registration_of_a_name_counts(database: Database) -> None:
    one, other = names(2)
    await register(database, "sandbox", {one: "1", other: "1"})
    await register(database, "sandbox", {one: "2"})
    known = await registered(database)
    assert (known[one], known[other]) == ("2", "1")
    await register(database, "judge", {one: "1"})
    assert (await registered(database))[one] == "1", "a service may go back to what it ran"


async def test_it_is_kept_when_its_process_is_gone(database: Database) -> None:
    (name,) = names(1)
    other = Database(database.url)
    await register(other, "sandbox", {name: "1"})
    await other.dispose()
    assert (await registered(database))[name] == "1"


async def test_services_that_start_at_once_do_not_wait_for_one_another_in_a_ring(
    database: Database,
) -> None:
    told = names(40)
    forth = dict.fromkeys(told, "forth")
    back = dict.fromkeys(reversed(told), "back")
    await asyncio.gather(*(register(database, "s", code) for code in [forth, back] * 20))
    known = await registered(database)
    assert len({known[name] for name in told}) == 1, "each registration is one transaction"


async def test_nothing_to_tell_is_told(database: Database) -> None:
    before = await registered(database)
    await register(database, "driver", {})
    assert await registered(database) == before


async def test_a_version_is_never_empty(database: Database) -> None:
    """Empty means: not known yet. Code without a version would be all versions at once."""
    (name,) = names(1)
    with pytest.raises(asyncpg.CheckViolationError):
        await register(database, "sandbox", {name: ""})
    assert name not in await registered(database)
