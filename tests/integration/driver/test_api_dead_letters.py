"""Dead letters over HTTP: seen, and offered again by a real driver that leads."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Generator
from typing import Any

import httpx
import pytest
from support import facts as f
from support.api import serve_api
from support.stack import StackThread
from support.waiting import eventually
from trialog.cli.stack.options import StackOptions
from trialog.driver.api import schemas
from trialog.proto import events as ev
from trialog.proto.ids import run_id_from
from trialog.proto.work import BUILD_WORLD, GENERATE, WorkName
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.bus import Bus
from trialog.spine.consumer import MAX_BREAKDOWNS, Consumer, Held
from trialog.spine.database import Database
from trialog.spine.log import Append, Claim, Release, new_event
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.presence import new_incarnation
from trialog.spine.runs import Runs

SOON_S = 10.0


@pytest.fixture
async def api(log: PostgresLog, blobs: PostgresBlobs) -> AsyncGenerator[httpx.AsyncClient]:
    async with serve_api(log, blobs, None) as served:
        yield served.client


async def append(log: PostgresLog, run_id: str, *facts: ev.Fact) -> None:
    (await log.commit(Append([new_event(run_id, fact) for fact in facts]))).check()


async def bury(log: PostgresLog, name: WorkName) -> None:
    """Do what a consumer does with work whose message it cannot handle."""
    for count in range(1, MAX_BREAKDOWNS + 1):
        verdict = (await log.commit(Claim(name.key, 10_000))).check()
        deliveries = verdict.breakdowns + 1
        if count < MAX_BREAKDOWNS:
            (await log.commit(Release(name.key, verdict.fence))).check()
            continue
        n = deliveries // MAX_BREAKDOWNS - 1
        fact = ev.DeliveryDeadLettered(name.key, name.kind, n, deliveries, f"bad {name.subject}")
        event = new_event(name.run_id, fact)
        (await log.commit(Release(name.key, verdict.fence, [event], dead=True))).check()


async def buried(log: PostgresLog, n: int) -> list[WorkName]:
    """Return the dead work of a new run, in order of its keys."""
    run_id = run_id_from(os.urandom(8))
    names = [WorkName(run_id, f"s0-p{p}-n0", GENERATE) for p in range(n)]
    requests = [f.trial_requested(name.subject) for name in names]
    await append(log, run_id, f.run_requested(run_id, prompts_per_step=n), *requests)
    for name in names:
        await bury(log, name)
    return names


async def redriven(api: httpx.AsyncClient, key: str) -> httpx.Response:
    return await api.post("/dead-letters/redrive", json={"key": key})


async def test_dead_letters_are_listed_in_pages_with_their_errors(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    names, others = await buried(log, 5), await buried(log, 1)
    seen: list[schemas.DeadLetter] = []
    params: dict[str, Any] = {"run": names[0].run_id, "limit": 2}
    while True:
        answer = await api.get("/dead-letters", params=params)
        page = schemas.DeadLetterPage.model_validate(answer.json())
        seen += page.dead_letters
        if page.next_cursor is None:
            break
        params["cursor"] = page.next_cursor
    assert [letter.key for letter in seen] == [name.key for name in names]
    assert [letter.error for letter in seen] == [f"bad {name.subject}" for name in names]
    assert {(x.kind, x.run_id, x.deliveries) for x in seen} == {("trial", names[0].run_id, 5)}
    (fact,) = [e for e in await log.read_run(others[0].run_id, 0, 100) if "Dead" in e.type]
    found = (await api.get("/dead-letters", params={"limit": 1000})).json()["dead_letters"]
    (other,) = [letter for letter in found if letter["run_id"] == others[0].run_id]
    assert other["dead_since"] == fact.recorded_at.isoformat(timespec="microseconds")


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"run": "nonsense"}, "run"),
        ({"limit": 0}, "limit"),
        ({"cursor": "%%%"}, "cursor"),
        ({"cursor": "WyJcdTAwMDAiXQ"}, "cursor"),
    ],
)
async def test_a_list_that_cannot_be_meant(
    api: httpx.AsyncClient, params: dict[str, Any], field: str
) -> None:
    answer = await api.get("/dead-letters", params=params)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)


async def test_dead_work_is_reopened_once_and_may_die_again(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    (name,) = await buried(log, 1)
    for _ in range(2):  # a client that did not hear the answer asks again
        answer = await redriven(api, name.key)
        shown = schemas.Redriven.model_validate(answer.json())
        assert (answer.status_code, shown.run_state) == (202, "running")
    page = (await api.get("/dead-letters", params={"run": name.run_id})).json()
    assert page == {"dead_letters": [], "next_cursor": None}
    await bury(log, name)
    (letter,) = (await api.get("/dead-letters", params={"run": name.run_id})).json()["dead_letters"]
    assert (letter["deliveries"], letter["error"]) == (10, "bad s0-p0-n0")


async def test_what_is_not_dead_is_not_reopened(api: httpx.AsyncClient, log: PostgresLog) -> None:
    paused, ended = (await buried(log, 2)), (await buried(log, 1))
    open_ = WorkName(paused[0].run_id, "s0-p9-n0", GENERATE)
    await append(log, open_.run_id, f.trial_requested(open_.subject), ev.RunPaused(0))
    assert (await redriven(api, paused[0].key)).json()["run_state"] == "paused"
    await log.commit(Append([], closes=[paused[1].key]))
    await append(log, ended[0].run_id, ev.RunCancelled())
    for key, status, title in (
        (open_.key, 409, "The work is not dead"),
        (paused[1].key, 409, "The work is not dead"),
        (ended[0].key, 409, "The run has ended"),
        ("r-abcdefghijklmnop/s0-p0-n0/generate", 404, "No such work"),
    ):
        answer = await redriven(api, key)
        assert (answer.status_code, answer.json()["title"]) == (status, title)
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("body", [{}, {"key": ""}, {"key": 7}, {"key": "a\0b"}, {"key": "ü" * 9}])
async def test_a_body_that_names_no_key(api: httpx.AsyncClient, body: Any) -> None:
    answer = await api.post("/dead-letters/redrive", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "key")


async def test_a_broken_body_is_a_problem(api: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await api.post("/dead-letters/redrive", content=b'{"key": ', headers=headers)
    assert (answer.status_code, answer.json()["title"]) == (400, "Broken JSON")


@pytest.fixture(scope="module")
def driver() -> Generator[StackThread]:
    """A real driver process that leads, on a Postgres and a NATS of its own."""
    options = StackOptions(with_ray=False, sandboxes=0, judges=0, trainers=0)
    running = StackThread(options)
    running.start()
    yield running
    running.stop()


@pytest.mark.stack
async def test_a_leading_driver_offers_reopened_work_within_seconds(driver: StackThread) -> None:
    database = Database(driver.database_url)
    log = PostgresLog(database, new_incarnation())
    bus = await Bus.connect(driver.nats_url, "test")
    built: list[str] = []

    async def on_world(held: Held) -> None:
        built.append(held.name.subject)
        fact = held.origin
        assert isinstance(fact, ev.WorldRequested)
        await held.finish(ev.WorldBuilt(fact.world_id, fact.action_key, "0" * 64))

    consumer = Consumer(
        bus=bus,
        log=log,
        runs=Runs(log),
        kind="world",
        pool="default",
        handler=on_world,
        concurrency=4,
        lease_ms=30_000,
        worker="tester",
    )
    async with httpx.AsyncClient(base_url=driver.stack.api_url, timeout=20) as api:
        answer = await api.post("/runs", json={"n_worlds": 2, "prompts_per_step": 2})
        run_id = answer.json()["run_id"]

        async def recorded(kind: str, world: str) -> bool:
            events = await log.read_run(run_id, 0, 100)
            return any(e.type == kind and f'"{world}"' in e.data for e in events)

        await eventually(lambda: recorded("WorldRequested", "w0"))
        name = WorkName(run_id, "w0", BUILD_WORLD)
        await bury(log, name)
        working = asyncio.create_task(consumer.run())
        try:
            await eventually(lambda: recorded("WorldBuilt", "w1"))
            assert built == ["w1"], "nobody is given what is dead"
            started = time.monotonic()
            assert (await redriven(api, name.key)).status_code == 202
            await eventually(lambda: recorded("WorldBuilt", "w0"), timeout_s=SOON_S)
            print(f"offered again and built after {time.monotonic() - started:.2f} s")
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await consumer.drain(0)
        answer = await redriven(api, name.key)
        assert (answer.status_code, "is done" in answer.json()["detail"]) == (409, True)
    await bus.close()
    await log.close()
    await database.dispose()
