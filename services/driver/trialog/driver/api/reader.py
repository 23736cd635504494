"""Reads runs, steps and trials as they are on the log now.

The read models trail the log by a moment, and stand still while no driver leads. What they do not
hold yet is folded on top of them here, so an answer never is older than what the caller wrote. A
long tail is left to the projector for a while: it folds it once for all, not at every request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any, TypeVar

import asyncpg
import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from trialog.driver import queries
from trialog.driver.api.problems import not_found, unavailable
from trialog.driver.views import (
    Doc,
    adopted,
    evolve_run,
    evolve_step,
    evolve_trial,
    step_of,
    trial_of,
)
from trialog.proto import events as ev
from trialog.proto import ids
from trialog.spine.budget import MICRO
from trialog.spine.log import Recorded
from trialog.spine.postgres import queries as spine_queries
from trialog.spine.postgres.log import PostgresLog, budget_of
from trialog.spine.sql import driver_connection

MOST_STEPS = 1000
_PARTITION = 0
_PAGE = 1000
_MOST_FOLDED = 20_000
_TRIAL_EVENTS = 1000
_LIST_S = 0.3
_TAIL_S = 2.0
_STALLED_S = 0.3
_POLL_S = 0.02

_decoder = msgspec.json.Decoder(dict)

_Name = TypeVar("_Name", bound=Hashable)
Facts = list[tuple[Recorded, ev.Fact]]
Evolve = Callable[[Doc | None, Recorded, ev.Fact], Doc | None]


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
        """Return a run's document: its state and totals. Raises a 404 problem."""
        doc, _ = await self.run_and_news(run_id)
        return doc

    async def run_in_full(self, run_id: str) -> tuple[Doc, list[tuple[int, Any]]]:
        """Return a run with what it was asked to do, and its steps by number: one more than
        MOST_STEPS when there are more. Raises a 404 problem."""
        doc, news = await self.run_and_news(run_id)
        steps = await self.steps_with(run_id, news, None, -1, MOST_STEPS + 1)
        rows = await self.fetch(queries.RUN_REQUEST, ids.event_id(run_id, "run"))
        spec = bytes(msgspec.json.decode(rows[0][0], type=_Requested).spec)
        labels = msgspec.json.decode(spec, type=_Labelled).labels
        budget = doc["budget"] | {"spent": await self._spent(doc)}
        return doc | {"labels": labels, "spec": msgspec.Raw(spec), "budget": budget}, steps

    async def _spent(self, doc: Doc) -> Doc:
        """Return what counts against a run's limits: where it has any, also calls that may have
        been made and have no reply on the log."""
        limited = any(limit is not None for limit in doc["budget"]["limits"].values())
        rows = await self.fetch(spine_queries.BUDGET, doc["run_id"]) if limited else []
        if rows:
            calls, tokens, microusd = budget_of(rows[0]).spent
            return {"judge_calls": calls, "tokens": tokens, "usd": microusd / MICRO}
        cost = doc["cost"]
        tokens = cost["prompt_tokens"] + cost["completion_tokens"]
        return {"judge_calls": cost["judge_calls"], "tokens": tokens, "usd": cost["usd"]}

    async def step_page(
        self, run_id: str, step: int | None, after: int, limit: int
    ) -> list[tuple[int, Any]]:
        """Return a page of a run's steps, each with its number, in order. Raises a 404 problem."""
        _, news = await self.run_and_news(run_id)
        return await self.steps_with(run_id, news, step, after, limit)

    async def steps_with(
        self, run_id: str, news: Facts, step: int | None, after: int, limit: int
    ) -> list[tuple[int, Any]]:
        """Return a page of a run's steps as step_page does, with the news folded in."""
        newer = await self._with_news(queries.STEP_DOCS, run_id, news, step_of, evolve_step)
        rows = await self.fetch(queries.STEP_PAGE, run_id, step, after, list(newer), limit)
        page: list[tuple[int, Any]] = [(row[0], msgspec.Raw(row[1].encode())) for row in rows]
        page += [(n, doc) for n, doc in newer.items() if step in (None, n) and n > after]
        return sorted(page, key=itemgetter(0))[:limit]

    async def run_and_news(self, run_id: str) -> tuple[Doc, Facts]:
        """Return a run, and the events that the read models do not hold yet.

        Raises a 404 problem, and a 503 problem when there are too many of those.
        """
        check_run_id(run_id)
        doc, events = await self._doc_and_tail(run_id)
        if len(events) == _PAGE:
            await self._catch_up(_TAIL_S)
            doc, events = await self._doc_and_tail(run_id)
        news: Facts = []
        while events:
            for event in events:
                fact = event.fact()
                doc = evolve_run(doc, event, fact)
                news.append((event, fact))
            if len(events) < _PAGE:
                break
            if len(news) >= _MOST_FOLDED:
                raise unavailable(f"the read models are over {len(news)} events behind {run_id}")
            events = await self._log.read_run(run_id, events[-1].position, _PAGE)
        if doc is None:
            raise not_found("run", f"there is no run {run_id}")
        return doc, news

    async def _doc_and_tail(self, run_id: str) -> tuple[Doc | None, list[Recorded]]:
        rows = await self.fetch(queries.RUN_DOC, run_id)
        doc: Doc | None = _decoder.decode(rows[0][0]) if rows else None
        return doc, await self._log.read_run(run_id, doc["position"] if doc else 0, _PAGE)

    async def run_page(
        self,
        state: str | None,
        labels: dict[str, str],
        seen: tuple[datetime, str] | None,
        limit: int,
    ) -> list[asyncpg.Record]:
        """Return a page of runs, newest first, after the (created_at, run id) seen last."""
        await self._catch_up(_LIST_S)  # a list is not folded
        at, run_id = seen or (None, None)
        wanted = msgspec.json.encode(labels).decode()
        return await self.fetch(queries.RUN_PAGE, state, wanted, at, run_id, limit)

    async def tree_page(self, root: str, after: int, limit: int) -> list[tuple[int, Doc]]:
        """Return a page of the runs of a tree, each with the position of its request, in order."""
        await self._catch_up(_LIST_S)  # a list is not folded
        rows = await self.fetch(queries.TREE_PAGE, root, after, limit)
        docs = await self._known(row[0] for row in rows if row[2] is None)
        return [
            (row[1], docs[row[0]] if row[2] is None else _decoder.decode(row[2])) for row in rows
        ]

    async def runs(self, run_ids: Sequence[str]) -> dict[str, Doc]:
        """Return runs of which it is known that they are there, as a list shows them."""
        rows = await self.fetch(queries.RUN_DOCS, list(run_ids)) if run_ids else []
        docs: dict[str, Doc] = {row[0]: _decoder.decode(row[1]) for row in rows}
        return docs | await self._known(set(run_ids) - docs.keys())

    async def _known(self, run_ids: Iterable[str]) -> dict[str, Doc]:
        """Return runs that the read models do not hold yet."""
        return {run_id: await self.run(run_id) for run_id in run_ids}

    async def _catch_up(self, most_s: float) -> None:
        """Let the read models reach what is on the log now, as long as a driver moves them."""
        end = await self._log.end(_PARTITION)
        loop = asyncio.get_running_loop()
        until, moved_at, reached = loop.time() + most_s, loop.time(), -1
        while (now := loop.time()) < until:
            position, led = (await self.fetch(queries.PROJECTION, _PARTITION))[0]
            if position > reached:
                reached, moved_at = position, now
            if position >= end or not led or now - moved_at > _STALLED_S:
                return
            await asyncio.sleep(_POLL_S)

    async def trial_page(self, run_id: str, wanted: TrialFilter, limit: int) -> list[Doc]:
        """Return a page of a run's trials in order of the text of their ids."""
        _, news = await self.run_and_news(run_id)
        newer = await self.trials_with(run_id, news)
        rows = await self.fetch(
            queries.TRIAL_PAGE,
            run_id,
            wanted.step,
            wanted.state,
            wanted.after,
            list(newer),
            limit,
        )
        page = [adopted(_decoder.decode(row[0]), run_id) for row in rows]
        page += [doc for doc in newer.values() if wanted.takes(doc)]
        page.sort(key=lambda doc: doc["trial_id"])
        return page[:limit]

    async def trials_with(self, run_id: str, news: Facts) -> dict[str, Doc]:
        """Return the trials that the news are about, as they are with them."""
        newer = await self._with_news(queries.TRIAL_DOCS, run_id, news, trial_of, evolve_trial)
        sources = {
            fact.step: fact.provenance.run_id
            for _, fact in news
            if isinstance(fact, ev.StepApplied) and fact.whole and fact.provenance
        }
        if sources:
            found = await self._trials_of(sources)
            newer |= {trial_id: adopted(doc, run_id) for trial_id, doc in found.items()}
        return newer

    async def _trials_of(self, sources: dict[int, str]) -> dict[str, Doc]:
        """Return the trials of steps, each of the run that has them, as they are on the log."""
        rows = await self.fetch(queries.TRIALS_OF, list(sources), list(sources.values()))
        docs: dict[str, Doc] = {row[0]: _decoder.decode(row[1]) for row in rows}
        for source in set(sources.values()):
            _, news = await self.run_and_news(source)
            newer = await self._with_news(queries.TRIAL_DOCS, source, news, trial_of, evolve_trial)
            docs |= {name: doc for name, doc in newer.items() if sources.get(doc["step"]) == source}
        return docs

    async def trial(self, run_id: str, trial_id: str) -> Doc:
        """Return one trial. Raises a 404 problem."""
        check_trial_id(trial_id)
        _, news = await self.run_and_news(run_id)
        step = ids.parse_trial_id(trial_id).step
        news = [one for one in news if trial_of(one[1]) == trial_id or step_of(one[1]) == step]
        newer = await self.trials_with(run_id, news)
        if trial_id in newer:
            return newer[trial_id]
        rows = await self.fetch(queries.TRIAL_DOC, run_id, trial_id)
        if not rows:
            raise not_found("trial", f"run {run_id} has no trial {trial_id}")
        return adopted(_decoder.decode(rows[0][0]), run_id)

    async def trial_events(self, run_id: str, trial_id: str) -> list[Recorded]:
        """Return the events that name a trial, in order; a thousand at most."""
        requested = ids.event_id(run_id, f"trial:{trial_id}")
        rows = await self.fetch(queries.TRIAL_EVENTS, run_id, requested, trial_id, _TRIAL_EVENTS)
        return [Recorded(*row) for row in rows]

    async def _with_news(
        self,
        query: str,
        run_id: str,
        news: Facts,
        name_of: Callable[[ev.Fact], _Name | None],
        evolve: Evolve,
    ) -> dict[_Name, Doc]:
        """Return the steps or trials that the events are about, with the events folded in."""
        about = [(name, event, fact) for event, fact in news if (name := name_of(fact)) is not None]
        names = list(dict.fromkeys(name for name, _, _ in about))
        if not names:
            return {}
        rows = await self.fetch(query, [run_id] * len(names), names)
        docs: dict[_Name, Doc] = {row[1]: _decoder.decode(row[2]) for row in rows}
        for name, event, fact in about:
            doc = evolve(docs.get(name), event, fact)
            if doc is not None:
                docs[name] = doc
        return docs

    async def processes(self) -> list[asyncpg.Record]:
        """Return the processes that are present."""
        return await self.fetch(spine_queries.PRESENT)

    async def fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """Return the rows of a statement of queries.py."""
        async with driver_connection(self._engine) as connection:
            return await connection.fetch(query, *arguments)


class _Requested(msgspec.Struct):
    """The part of a RunRequested event that a run is shown with, as it was recorded."""

    spec: msgspec.Raw


class _Labelled(msgspec.Struct):
    """The part of a recorded spec that is shown apart."""

    labels: dict[str, str]


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
