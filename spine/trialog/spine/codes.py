"""What code the services run, told to one another through the database."""

from __future__ import annotations

from collections.abc import Mapping

from trialog.spine.database import Database, patiently
from trialog.spine.postgres import queries


async def register(database: Database, service: str, code: Mapping[str, str]) -> None:
    """Tell what a service runs: versions by name, such as ``agent:policy``. The latest counts.

    Raises DOWN.
    """
    names, versions = list(code), list(code.values())
    if names:
        await patiently(lambda: database.fetch(queries.REGISTER_CODE, service, names, versions))


async def registered(database: Database) -> dict[str, str]:
    """Return the version of all code that any service ever told of, by name. Raises DOWN."""
    rows = await patiently(lambda: database.fetch(queries.CODE))
    return {row[0]: row[1] for row in rows}
