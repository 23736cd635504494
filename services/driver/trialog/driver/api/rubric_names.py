"""A rubric that settings name, resolved to the whole one before they are checked.

What goes on the log is the whole rubric: a later version changes no run.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from trialog.driver.api.problems import invalid
from trialog.driver.api.rubric_registry import Registry, UnknownRubricError
from trialog.proto.rubric import parse_reference


async def resolve(engine: AsyncEngine, name: str, title: str) -> dict[str, Any]:
    """Return the whole rubric that NAME (its latest version) or NAME@VERSION means.

    Raises a 422 problem that names the field ``rubric`` and what is known.
    """
    try:
        return (await Registry(engine).find(parse_reference(name))).rubric.content()
    except (ValueError, UnknownRubricError) as error:
        raise invalid([("rubric", str(error))], title) from None


async def resolve_in(engine: AsyncEngine, settings: dict[str, Any], title: str) -> dict[str, Any]:
    """Return settings with the rubric whole where they name one. Raises a 422 problem as resolve
    does."""
    name = settings.get("rubric")
    if not isinstance(name, str):
        return settings
    return settings | {"rubric": await resolve(engine, name, title)}
