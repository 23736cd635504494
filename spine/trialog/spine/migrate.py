"""``python -m trialog.spine.migrate [--alone]``: bring the database to this build's schema.

Safe when several processes start at once: an advisory lock lets one migrate while the others wait.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from trialog.spine.sql import async_url

_LOCK = 0x7472_6961
_ROLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def newest_revision() -> str:
    """Return the revision that this build works with."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


async def migrate(admin_url: str, app_url: str, *, alone: bool = False) -> None:
    """Apply what is missing and give the services' role SELECT and EXECUTE, nothing else.

    ``admin_url`` is the owner's; ``app_url`` names the services' role and its password. ``alone``:
    no service runs, so whoever is still registered is dead, and its leases end now.
    Raises ValueError for a role name that is no plain identifier.
    """
    engine = create_async_engine(async_url(admin_url))  # not ours: DDL wants a transaction
    try:
        async with engine.connect() as lock:
            await lock.execute(sa.text("select pg_advisory_lock(:key)"), {"key": _LOCK})
            async with engine.begin() as connection:
                await connection.run_sync(_upgrade)
                await _grant(connection, app_url)
                if alone:
                    await connection.execute(
                        sa.text("select void_incarnations(array(select incarnation from process))")
                    )
            await lock.execute(sa.text("select pg_advisory_unlock(:key)"), {"key": _LOCK})
    finally:
        await engine.dispose()


def _upgrade(connection: sa.Connection) -> None:
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


async def _grant(connection: AsyncConnection, app_url: str) -> None:
    url = make_url(app_url)
    role = url.username or ""
    if not _ROLE.fullmatch(role):
        raise ValueError(f"TRIALOG_DATABASE_URL: {role!r} is not a plain role name")
    password = str(url.password or "").replace("'", "''")
    exists = await connection.scalar(
        sa.text("select 1 from pg_roles where rolname = :role"), {"role": role}
    )
    verb = "alter" if exists else "create"
    await connection.exec_driver_sql(f"{verb} role {role} login password '{password}'")
    for statement in (
        f"grant usage on schema public to {role}",
        f"grant select on all tables in schema public to {role}",
        "revoke execute on all functions in schema public from public",
        f"grant execute on all functions in schema public to {role}",
        f"alter role {role} set search_path = public",
    ):
        await connection.exec_driver_sql(statement)


def main() -> None:
    """Migrate with TRIALOG_ADMIN_DATABASE_URL and TRIALOG_DATABASE_URL, or exit 2 naming them."""
    names = ("TRIALOG_ADMIN_DATABASE_URL", "TRIALOG_DATABASE_URL")
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        sys.stderr.write(f"migrate: set {' and '.join(missing)}\n")
        raise SystemExit(2)
    alone = sys.argv[1:] == ["--alone"]
    asyncio.run(migrate(*(os.environ[name] for name in names), alone=alone))


if __name__ == "__main__":
    main()
