"""Reads runs and trials as they are on the log now.

The read models trail the log by a moment, and stand still while no driver leads. What they do not
hold yet is folded on top of them here, so an answer never is older than what the caller wrote.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from trialog.driver import queries
from trialog.driver.api.problems import not_found
from trialog.driver.views import Doc, evolve_run, evolve_trial, trial_of
from trialog.proto import events as ev
from trialog.proto import ids
from trialog.spine.database import driver_connection
from trialog.spine.log import Recorded
from trialog.spine.postgres import queries as spine_queries
from trialog.spine.postgres.log import PostgresLog

_PAGE = 1000
_TRIAL_EVENTS = 1000
_CATCH_UP_S = 0.3
_CATCH_UP_POLL_S = 0.02

_decoder = msgspec.json.Decoder(dict)

Facts = list[tuple[Recorded, ev.Fact]]


@dataclass(frozen=True, slots=True)
class TrialFilter:
    """Which trials of a run: of a step, in a state, after a trial id; None and "" mean all."""

    step: int | None = None
    state: str | None = None
    after: str = ""

    def takes(self, doc: Doc) -> bool:
        """Whether a trial is among them."""
        return (
            self.step in (None, doc["step"])
            and self.state in (None, doc["state"])
            and doc["trial_id"] > self.after
        )


class Reader:
    """Answers questions about runs from the read models and the log behind them."""

    def __init__(self, log: PostgresLog, engine: AsyncEngine) -> None:
        self._log = log
        self._engine = engine

    async def run(self, run_id: str) -> Doc:
        """Return a run's document. Raises a 404 problem."""
        doc, _ = await self._run_and_news(run_id)
        return doc

    async def _run_and_news(self, run_id: str) -> tuple[Doc, Facts]:
        """Return a run, and the events that the read models do not hold yet."""
        check_run_id(run_id)
        rows = await self._fetch(queries.RUN_DOC, run_id)
        doc: Doc | None = _decoder.decode(rows[0][0]) if rows else None
        after = doc["position"] if doc else 0
        news: Facts = []
        while events := await self._log.read_run(run_id, after, _PAGE):
            for event in events:
                fact = event.fact()
                doc = evolve_run(doc, event, fact)
                news.append((event, fact))
            after = events[-1].position
            if len(events) < _PAGE:
                break
        if doc is None:
            raise not_found("run", f"there is no run {run_id}")
        return doc, news

    async def run_page(
        self,
        state: str | None,
        labels: dict[str, str],
        seen: tuple[datetime, str] | None,
        limit: int,
    ) -> list[asyncpg.Record]:
        """Return a page of runs, newest first, after the (created_at, run id) seen last."""
        await self._catch_up()
        at, run_id = seen or (None, None)
        wanted = msgspec.json.encode(labels).decode()
        return await self._fetch(queries.RUN_PAGE, state, wanted, at, run_id, limit)

    async def _catch_up(self) -> None:
        """Give the read models a moment to reach what is on the log now: a list is not folded."""
        end = await self._log.end(0)
        loop = asyncio.get_running_loop()
        until = loop.time() + _CATCH_UP_S
        while loop.time() < until:
            rows = await self._fetch(spine_queries.CURSOR, "views", 0)
            if rows and rows[0][0] >= end:
                return
            await asyncio.sleep(_CATCH_UP_POLL_S)

    async def trial_page(self, run_id: str, wanted: TrialFilter, limit: int) -> list[Doc]:
        """Return a page of a run's trials in order of the text of their ids."""
        _, news = await self._run_and_news(run_id)
        newer = await self._with_news(run_id, news)
        rows = await self._fetch(
            queries.TRIAL_PAGE,
            run_id,
            wanted.step,
            wanted.state,
            wanted.after,
            list(newer),
            limit,
        )
        page = [_decoder.decode(row[0]) for row in rows]
        page += [doc for doc in newer.values() if wanted.takes(doc)]
        page.sort(key=lambda doc: doc["trial_id"])
        return page[:limit]

    async def trial(self, run_id: str, trial_id: str) -> Doc:
        """Return one trial. Raises a 404 problem."""
        check_trial_id(trial_id)
        _, news = await self._run_and_news(run_id)
        newer = await self._with_news(run_id, [one for one in news if trial_of(one[1]) == trial_id])
        if trial_id in newer:
            return newer[trial_id]
        rows = await self._fetch(queries.TRIAL_DOC, run_id, trial_id)
        if not rows:
            raise not_found("trial", f"run {run_id} has no trial {trial_id}")
        return _decoder.decode(rows[0][0])

    async def trial_events(self, run_id: str, trial_id: str) -> list[Recorded]:
        """Return the events that name a trial, in order; a thousand at most."""
        requested = ids.event_id(run_id, f"trial:{trial_id}")
        rows = await self._fetch(queries.TRIAL_EVENTS, run_id, requested, trial_id, _TRIAL_EVENTS)
        return [Recorded(*row) for row in rows]

    async def _with_news(self, run_id: str, news: Facts) -> dict[str, Doc]:
        """Return the trials that the events are about, with the events folded in."""
        about = [(trial_of(fact), event, fact) for event, fact in news]
        names = list(dict.fromkeys(name for name, _, _ in about if name is not None))
        if not names:
            return {}
        rows = await self._fetch(queries.TRIAL_DOCS, [run_id] * len(names), names)
        docs: dict[str, Doc] = {row[1]: _decoder.decode(row[2]) for row in rows}
        for name, event, fact in about:
            doc = evolve_trial(docs.get(name), event, fact) if name is not None else None
            if name is not None and doc is not None:
                docs[name] = doc
        return docs

    async def processes(self) -> list[asyncpg.Record]:
        """Return the processes that are present."""
        return await self._fetch(spine_queries.PRESENT)

    async def _fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        async with driver_connection(self._engine) as connection:
            return await connection.fetch(query, *arguments)


def check_run_id(run_id: str) -> None:
    """Raise a 404 problem for what is no run id: nothing can be named so."""
    try:
        ids.check_run_id(run_id)
    except ids.InvalidIdError as error:
        raise not_found("run", str(error)) from None


def check_trial_id(trial_id: str) -> None:
    """Raise a 404 problem for what is no trial id."""
    try:
        ids.parse_trial_id(trial_id)
    except ids.InvalidIdError as error:
        raise not_found("trial", str(error)) from None
