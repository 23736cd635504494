"""Migrations on a database that nobody has touched: raced, repeated, and refused when not meant."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator

import asyncpg
import pytest
from sqlalchemy.engine import make_url
from support.stack import StackThread
from trialog.spine.database import connect
from trialog.spine.migrate import migrate, newest_revision

Urls = tuple[str, str]


@pytest.fixture
async def urls(stack: StackThread) -> AsyncGenerator[Urls]:
    """Owner's and services' URL of an empty database."""
    name = f"t{os.urandom(6).hex()}"
    owner = await connect(stack.admin_database_url)
    await owner.execute(f"create database {name}")

    def of(url: str) -> str:
        return make_url(url).set(database=name).render_as_string(hide_password=False)

    yield of(stack.admin_database_url), of(stack.database_url)
    await owner.execute(f"drop database {name} with (force)")
    await owner.close()


async def run(urls: Urls | None) -> tuple[int | None, str]:
    """Run the command as an operator would; return exit code and stderr."""
    names = ("TRIALOG_ADMIN_DATABASE_URL", "TRIALOG_DATABASE_URL")
    env = {key: value for key, value in os.environ.items() if key not in names}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "trialog.spine.migrate",
        env=env | dict(zip(names, urls or (), strict=False)),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    return process.returncode, said.decode()


async def revision(url: str) -> str:
    owner = await connect(url)
    found = await owner.fetchval("select string_agg(version_num, ',') from alembic_version")
    await owner.close()
    return str(found)


async def test_three_at_once_migrate_once(urls: Urls) -> None:
    """Several replicas boot cold."""
    assert await asyncio.gather(*(run(urls) for _ in range(3))) == [(0, "")] * 3
    assert await revision(urls[0]) == newest_revision()
    service = await connect(urls[1])
    assert await service.fetchval("select position from head where partition = 0") == 0
    await service.close()


async def test_migrating_again_changes_nothing_but_the_password(urls: Urls) -> None:
    await migrate(*urls)
    await asyncio.gather(*(migrate(*urls) for _ in range(3)))
    assert await revision(urls[0]) == newest_revision()


async def test_a_migration_that_fails_leaves_nothing_half_done(urls: Urls) -> None:
    owner = await connect(urls[0])
    await owner.execute("create table run_view (in_the_way int)")
    with pytest.raises(asyncpg.DuplicateTableError):
        await migrate(*urls)
    tables = await owner.fetch("select tablename from pg_tables where schemaname = 'public'")
    assert [row[0] for row in tables] == ["run_view"]
    await owner.execute("drop table run_view")
    await owner.close()
    await migrate(*urls)
    assert await revision(urls[0]) == newest_revision()


async def test_a_role_that_is_no_plain_name_is_refused(urls: Urls) -> None:
    with pytest.raises(ValueError, match="not a plain role name"):
        await migrate(urls[0], "postgresql://x%22;drop@127.0.0.1/db")


async def test_the_command_names_what_is_not_set() -> None:
    code, said = await run(None)
    assert code == 2
    assert "TRIALOG_ADMIN_DATABASE_URL" in said
    assert "Traceback" not in said
