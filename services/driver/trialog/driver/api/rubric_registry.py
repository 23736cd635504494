"""Rubrics by name and version: those that are built in, and those that Postgres keeps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine

from trialog.driver import queries
from trialog.proto.canonical import canonical, digest
from trialog.proto.rubric import BUILT_IN, RECORDED, Reference, Rubric
from trialog.spine.sql import driver_connection

_MOST_NAMED = 20


class UnknownRubricError(LookupError):
    """No rubric has this name, or it has no such version. The message says what there is."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a rubric that never changes. ``created_at`` is None for one that is built in:
    it came with the program."""

    name: str
    number: int
    digest: str
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class Kept:
    """A version of a rubric with what it says."""

    version: Version
    rubric: Rubric


@dataclass(frozen=True, slots=True)
class Line:
    """A rubric in the list: its latest version, and its size."""

    latest: Version
    scoring: str
    n_criteria: int


@dataclass(frozen=True, slots=True)
class Put:
    """What became of a rubric that was put: its version, whether that is new, and the latest."""

    version: Version
    added: bool
    latest: int


class Registry:
    """The rubrics that runs may name. A built-in name is always the built-in rubric's."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def put(self, rubric: Rubric) -> Put:
        """Keep a rubric as the next version of its name; content that is there is that version."""
        content = rubric.content()
        said = digest(content)
        (row,) = await self._fetch(
            queries.PUT_RUBRIC, rubric.name, said, canonical(content).decode()
        )
        version = Version(rubric.name, row["version"], said, row["created_at"])
        return Put(version, row["added"], row["latest"])

    async def find(self, wanted: Reference) -> Kept:
        """Return a version of a rubric, the latest where none is named.

        Raises UnknownRubricError.
        """
        if wanted.name in BUILT_IN:
            if wanted.version in (None, 1):
                return _built_in(wanted.name)
            raise UnknownRubricError(f"rubric {wanted.name} is built in and has version 1 alone")
        rows = await self._fetch(queries.RUBRIC, wanted.name, wanted.version)
        if not rows:
            raise UnknownRubricError(await self._what_there_is(wanted))
        row = rows[0]
        rubric = Rubric.model_validate_json(row["data"], context=RECORDED)
        return Kept(_version(row, wanted.name), rubric)

    async def holds(self, rubric: Rubric) -> bool:
        """Whether a rubric is a version of its name."""
        if rubric.name in BUILT_IN:
            return rubric == BUILT_IN[rubric.name]
        said = digest(rubric.content())
        return bool(await self._fetch(queries.RUBRIC_BY_DIGEST, rubric.name, said))

    async def versions(self, name: str, below: int | None, limit: int) -> list[Version]:
        """Return a page of a rubric's versions, newest first, below a version that was seen."""
        if name in BUILT_IN:
            return [_built_in(name).version] if below is None else []
        rows = await self._fetch(queries.RUBRIC_VERSIONS, name, below, limit)
        return [_version(row, name) for row in rows]

    async def page(self, after: str, limit: int) -> list[Line]:
        """Return a page of rubrics in order of their names, after a name ("" for the first)."""
        # A kept one may have a name that a later program has taken for one of its own.
        rows = await self._fetch(queries.RUBRIC_PAGE, after, list(BUILT_IN), limit)
        kept = [Line(_version(row, row["name"]), row["scoring"], row["n_criteria"]) for row in rows]
        lines = [*_lines(name for name in BUILT_IN if name > after), *kept]
        return sorted(lines, key=lambda line: line.latest.name)[:limit]

    async def _what_there_is(self, wanted: Reference) -> str:
        if wanted.version is not None:
            versions = await self.versions(wanted.name, None, 1)
            if versions:
                latest = versions[0].number
                return (
                    f"rubric {wanted.name} has no version {wanted.version}: the latest is {latest}"
                )
        names = [line.latest.name for line in await self.page("", _MOST_NAMED + 1)]
        known = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
        return (
            f"rubric {wanted.name} is unknown; known are {known}; "
            f"put one with PUT /rubrics/{wanted.name}"
        )

    async def _fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        async with driver_connection(self._engine) as connection:
            return await connection.fetch(query, *arguments)


def _built_in(name: str) -> Kept:
    rubric = BUILT_IN[name]
    return Kept(Version(name, 1, digest(rubric.content()), None), rubric)


def _lines(names: Iterable[str]) -> list[Line]:
    found = map(_built_in, names)
    return [Line(one.version, one.rubric.scoring, len(one.rubric.criteria)) for one in found]


def _version(row: asyncpg.Record, name: str) -> Version:
    return Version(name, row["version"], row["digest"], row["created_at"])
