"""The projector against Postgres: fenced, coalescing, safe to repeat, rebuildable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from support import facts as f
from support.api import own
from trialog.driver import projector as module
from trialog.driver.projector import Projector
from trialog.driver.views import evolve_run
from trialog.proto import events as ev
from trialog.spine.database import Database
from trialog.spine.log import Append, FencedError, Recorded, new_event
from trialog.spine.postgres.log import PostgresLog


async def rows(database: Database, query: str, *arguments: Any) -> list[Any]:
    async with database.connection() as connection:
        return await connection.fetch(query, *arguments)


async def run_doc(database: Database, run_id: str) -> Any:
    found = await rows(database, "select doc::text from run_view where run_id = $1", run_id)
    return json.loads(found[0][0]) if found else None


async def trial_docs(database: Database, run_id: str) -> dict[str, Any]:
    query = "select trial_id, doc::text from trial_view where run_id = $1"
    return {row[0]: json.loads(row[1]) for row in await rows(database, query, run_id)}


async def step_docs(database: Database, run_id: str) -> dict[int, Any]:
    query = "select step, doc::text from step_view where run_id = $1"
    return {row[0]: json.loads(row[1]) for row in await rows(database, query, run_id)}


async def all_docs(database: Database, run_id: str) -> tuple[Any, ...]:
    return (
        await run_doc(database, run_id),
        await step_docs(database, run_id),
        await trial_docs(database, run_id),
    )


async def append(log: PostgresLog, run_id: str, facts: Sequence[ev.Fact]) -> None:
    (await log.commit(Append([new_event(run_id, fact) for fact in facts]))).check()


async def unprojected(log: PostgresLog, projector: Projector) -> list[Recorded]:
    return await log.read(0, await projector.cursor(), 10_000)


def small_run(run_id: str) -> list[ev.Fact]:
    """One step of two trials, to its end."""
    return [
        f.run_requested(run_id, n_steps=1, labels={"team": "a"}),
        *f.judged_trial("s0-p0-n0"),
        *f.judged_trial("s0-p1-n0"),
        f.step_requested(),
        f.step_applied(),
        ev.RunCompleted(1, "w1"),
    ]


@pytest.fixture
async def projector(log: PostgresLog) -> Projector:
    return Projector(log, 0)


async def test_batches_of_any_size_give_the_same_documents(
    log: PostgresLog, database: Database, projector: Projector, run_id: str
) -> None:
    fence = await own(log)
    await projector.apply(await unprojected(log, projector), fence)
    await append(log, run_id, small_run(run_id))
    events = await unprojected(log, projector)
    for event in events:  # each in a batch of its own, by a projector that remembers nothing
        await Projector(log, 0).apply([event], fence)
    singly = await all_docs(database, run_id)
    await projector.apply(events, fence)
    assert await all_docs(database, run_id) == singly
    doc, steps, trials = singly
    assert (steps[0]["state"], steps[0]["n_judged"], len(steps)) == ("applied", 2, 1)
    assert (doc["state"], doc["counts"]["executed"]["judge"]) == ("completed", 2)
    assert {trial["state"] for trial in trials.values()} == {"judged"}
    assert await projector.cursor() == events[-1].position
    query = "select state, position, created_at, labels::text from run_view where run_id = $1"
    (row,) = await rows(database, query, run_id)
    assert (row["state"], row["position"]) == ("completed", doc["position"])
    assert row["created_at"].isoformat(timespec="microseconds") == doc["created_at"]
    assert json.loads(row["labels"]) == {"team": "a"}


async def test_a_batch_that_was_committed_unseen_may_be_applied_again(
    log: PostgresLog, database: Database, projector: Projector, run_id: str
) -> None:
    fence = await own(log)
    await projector.apply(await unprojected(log, projector), fence)
    facts = small_run(run_id)
    await append(log, run_id, facts[:5])
    await projector.apply(await unprojected(log, projector), fence)
    before = await run_doc(database, run_id)
    await append(log, run_id, facts[5:])
    events = await unprojected(log, projector)
    await Projector(log, 0).apply(events, fence)
    await projector.apply(events, fence)  # its documents in memory are the old ones
    after = await run_doc(database, run_id)
    assert before["counts"]["executed"]["judge"] == 0
    assert after["counts"]["executed"]["judge"] == 2
    assert after == _folded(await log.read_run(run_id, 0, 1000))


def _folded(events: Sequence[Recorded]) -> Any:
    doc = None
    for event in events:
        doc = evolve_run(doc, event, event.fact())
    return doc


async def test_a_replaced_owner_projects_nothing(
    log: PostgresLog, database: Database, projector: Projector, run_id: str
) -> None:
    """I8: the fence is checked in the transaction that moves the read models."""
    old = await own(log)
    await projector.apply(await unprojected(log, projector), old)
    await append(log, run_id, small_run(run_id))
    events = await unprojected(log, projector)
    new = await own(log)
    with pytest.raises(FencedError):
        await projector.apply(events, old)
    with pytest.raises(FencedError):
        await projector.rebuild(old)
    assert await run_doc(database, run_id) is None
    await projector.apply(events, new)
    assert (await run_doc(database, run_id))["state"] == "completed"


async def test_read_models_are_rebuilt_from_the_log(
    log: PostgresLog,
    database: Database,
    projector: Projector,
    run_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fence = await own(log)
    await append(log, run_id, small_run(run_id))
    await projector.apply(await unprojected(log, projector), fence)
    kept = await all_docs(database, run_id)
    monkeypatch.setattr(module, "_PAGE", 5)  # many pages, and documents in memory between them
    assert await projector.rebuild(fence) == await log.end(0)
    assert await all_docs(database, run_id) == kept
    await rows(database, "select forget_views(0, $1, $2)", log.incarnation, fence)
    assert await all_docs(database, run_id) == (None, {}, {})
    assert await projector.cursor() == 0
    await projector.rebuild(fence)


async def test_memory_is_bounded_and_what_was_let_go_is_loaded(
    log: PostgresLog,
    database: Database,
    run_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_KEPT_TRIALS", 3)
    projector = Projector(log, 0)
    fence = await own(log)
    await projector.apply(await unprojected(log, projector), fence)
    names = [f"s0-p{n}-n0" for n in range(10)]
    requests: list[ev.Fact] = [f.run_requested(run_id, prompts_per_step=10)]
    await append(log, run_id, requests + [f.trial_requested(name) for name in names])
    await projector.apply(await unprojected(log, projector), fence)
    await append(log, run_id, [f.trajectory(name) for name in names])
    await projector.apply(await unprojected(log, projector), fence)
    found = await trial_docs(database, run_id)
    assert {doc["state"] for doc in found.values()} == {"recorded"}
    assert len(projector._trials.documents) == 3


WRITTEN = """
with batch as (select xmin from cursor where name = 'views' and partition = 0)
select count(*), sum(length(v.text))
from (select xmin, doc::text from run_view union all select xmin, doc::text from step_view
    union all select xmin, doc::text from trial_view) v (xmin, text), batch
where v.xmin = batch.xmin
"""


async def test_a_late_step_writes_no_more_than_an_early_one(
    log: PostgresLog, database: Database, projector: Projector, run_id: str
) -> None:
    """Rows and bytes of documents in the transaction that moved the cursor."""
    fence = await own(log)
    await projector.apply(await unprojected(log, projector), fence)
    await append(log, run_id, [f.run_requested(run_id, n_steps=2000, labels={"team": "a" * 200})])
    written: dict[int, tuple[int, int]] = {}
    for step in (0, 1, 1999):
        # What lies between is in the log and in the read models, in batches of its own.
        between = range(2, 1999) if step == 1999 else ()
        facts = [fact for n in between for fact in (f.step_requested(n), f.step_applied(n))]
        for start in range(0, len(facts), 500):
            await append(log, run_id, facts[start : start + 500])
        await projector.apply(await unprojected(log, projector), fence)
        course = [*f.judged_trial(f"s{step}-p0-n0", step), f.step_requested(step)]
        await append(log, run_id, [*course, f.step_applied(step)])
        await projector.apply(await unprojected(log, projector), fence)
        ((count, size),) = await rows(database, WRITTEN)
        written[step] = (count, size)
    assert len(await step_docs(database, run_id)) == 2000
    assert {count for count, _ in written.values()} == {3}, "its run, its step, its trial"
    digits = 60  # of step numbers, positions, counts and sums
    assert written[1999][1] <= written[1][1] + digits, written
