"""A run's events over HTTP: pages, and streams that resume, end and stop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator

import httpx
import pytest
from support import facts as f
from support.api import Api, serve_api
from trialog.client import AsyncTrialogClient
from trialog.client.sse import ServerEvent, SseParser
from trialog.driver.api import schemas
from trialog.proto import events as ev
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.bus import Bus
from trialog.spine.log import Append, new_event
from trialog.spine.postgres.log import PostgresLog

STREAM = {"Accept": "text/event-stream"}


@pytest.fixture
async def api(log: PostgresLog, blobs: PostgresBlobs, bus: Bus) -> AsyncGenerator[Api]:
    async with serve_api(log, blobs, bus) as served:
        yield served


async def append(log: PostgresLog, run_id: str, *facts: ev.Fact) -> None:
    (await log.commit(Append([new_event(run_id, fact) for fact in facts]))).check()


async def messages(response: httpx.Response) -> AsyncIterator[ServerEvent]:
    parser = SseParser()
    async for chunk in response.aiter_bytes():
        for message in parser.feed(chunk):
            yield message


async def test_events_come_in_pages_as_they_were_recorded(
    api: Api, log: PostgresLog, run_id: str
) -> None:
    await append(log, run_id, f.run_requested(run_id), *f.judged_trial("s0-p0-n0"))
    seen: list[schemas.Event] = []
    after = 0
    while True:
        params = {"after": after, "limit": 3}
        answer = await api.client.get(f"/runs/{run_id}/events", params=params)
        page = schemas.EventPage.model_validate(answer.json())
        seen += page.events
        if not page.events:
            assert page.next == after
            break
        assert page.next == page.events[-1].position
        after = page.next
    recorded = await log.read_run(run_id, 0, 100)
    assert [event.position for event in seen] == [event.position for event in recorded]
    assert [event.data for event in seen] == [json.loads(event.data) for event in recorded]
    assert [event.recorded_at for event in seen] == [event.recorded_at for event in recorded]
    assert [event.event_id for event in seen] == [str(event.event_id) for event in recorded]


async def test_a_stream_follows_the_log_and_ends_with_the_run(
    api: Api, log: PostgresLog, run_id: str
) -> None:
    await append(log, run_id, f.run_requested(run_id))
    seen: list[ServerEvent] = []
    async with api.client.stream("GET", f"/runs/{run_id}/events", headers=STREAM) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        async for message in messages(response):
            seen.append(message)
            if len(seen) == 1:  # what is recorded while the stream is open comes too
                await append(log, run_id, f.trial_requested("s0-p0-n0"))
                await append(log, run_id, ev.RunCancelled("enough"))
    recorded = await log.read_run(run_id, 0, 100)
    assert [message.type for message in seen] == [event.type for event in recorded]
    assert [message.id for message in seen] == [str(event.position) for event in recorded]
    last = schemas.Event.model_validate_json(seen[-1].data)
    assert (last.type, last.data) == ("RunCancelled", {"reason": "enough"})


async def test_a_stream_goes_on_after_the_last_event_seen(
    api: Api, log: PostgresLog, run_id: str
) -> None:
    await append(log, run_id, f.run_requested(run_id), *f.judged_trial("s0-p0-n0"))
    await append(log, run_id, ev.RunCompleted(0, "x"))
    positions = [str(event.position) for event in await log.read_run(run_id, 0, 100)]
    path = f"/runs/{run_id}/events"
    for name, params in (("Last-Event-ID", {}), ("X-Other", {"after": positions[3]})):
        headers = STREAM | {name: positions[3]}
        async with api.client.stream("GET", path, headers=headers, params=params) as response:
            assert [message.id async for message in messages(response)] == positions[4:]
    ended = await api.client.get(path, headers=STREAM | {"Last-Event-ID": positions[-1]})
    assert ended.status_code == 204
    for wrong in ("x", "-1", "1" * 30):
        answer = await api.client.get(path, headers=STREAM | {"Last-Event-ID": wrong})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "Last-Event-ID")


async def test_a_hint_wakes_a_stream_before_its_poll(
    api: Api, log: PostgresLog, bus: Bus, run_id: str
) -> None:
    """Not a speed test: with the poll alone the gaps would add up to two seconds."""
    log.on_append = lambda partition: hints.append(asyncio.create_task(bus.hint(partition)))
    hints: list[asyncio.Task[None]] = []
    await append(log, run_id, f.run_requested(run_id, prompts_per_step=20))
    begin = time.monotonic()
    async with api.client.stream("GET", f"/runs/{run_id}/events", headers=STREAM) as response:
        n = 0
        async for _ in messages(response):
            n += 1
            if n == 20:
                await append(log, run_id, ev.RunCompleted(0, "x"))
            elif n < 20:
                await append(log, run_id, f.trial_requested(f"s0-p{n}-n0"))
    assert n == 21
    assert time.monotonic() - begin < 20 * 0.25
    await asyncio.gather(*hints)


async def test_open_streams_end_when_the_server_stops(
    api: Api, log: PostgresLog, run_id: str
) -> None:
    await append(log, run_id, f.run_requested(run_id))
    async with api.client.stream("GET", f"/runs/{run_id}/events", headers=STREAM) as response:
        stream = messages(response)
        assert (await anext(stream)).type == "RunRequested"
        begin = time.monotonic()
        api.stopping.set()
        assert [message async for message in stream] == []
        await api.serving
        assert time.monotonic() - begin < 2


async def test_the_client_watches_a_run_to_its_end(api: Api, log: PostgresLog) -> None:
    async with AsyncTrialogClient(api.url) as client:
        run = await client.create_run({"n_steps": 1})
        await append(log, run["run_id"], f.trial_requested("s0-p0-n0"))
        seen: list[str] = []
        async for event in client.watch(run["run_id"]):
            seen.append(event["type"])
            if event["type"] == "TrialRequested":
                await client.cancel(run["run_id"])
        assert seen == ["RunRequested", "TrialRequested", "RunCancelled"]
        assert (await client.get_run(run["run_id"]))["state"] == "cancelled"
        assert (await client.get_weights(run["run_id"], 0))["version"] == 0
        assert (await client.get_trial(run["run_id"], "s0-p0-n0"))["state"] == "requested"
