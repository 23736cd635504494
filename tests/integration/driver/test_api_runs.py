"""Runs over HTTP, against the log in Postgres. No driver leads: answers come from the log."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import httpx
import pytest
from support import facts as f
from support.api import append, created, key, own, project_all
from trialog.driver.api import reader, schemas
from trialog.driver.api.routing import cursor_of
from trialog.proto import events as ev
from trialog.proto.canonical import bytes_digest
from trialog.proto.ids import run_id_from
from trialog.proto.policy import initial_weights
from trialog.proto.runspec import RunSpec
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.postgres import queries
from trialog.spine.postgres.log import PostgresLog


async def test_a_run_is_recorded_and_its_weights_stand_before_it(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs
) -> None:
    answer = await api.post("/runs", json={"n_steps": 1, "labels": {"team": "a"}})
    run = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/runs/{run['run_id']}"
    schemas.Run.model_validate(run)
    assert (run["state"], run["labels"], run["rubric"]) == ("running", {"team": "a"}, "v1")
    assert run["spec"]["prompts_per_step"] == 3
    (event,) = await log.read_run(run["run_id"], 0, 10)
    fact = event.fact()
    assert isinstance(fact, ev.RunRequested)
    assert fact.root == run["run_id"]
    assert fact.initial_weights == bytes_digest(initial_weights(3))
    assert await PostgresBlobs(log.database, blobs._folder).get(fact.initial_weights)
    assert (await api.get(answer.headers["location"])).json() == run


async def test_a_key_names_one_run(api: httpx.AsyncClient, log: PostgresLog) -> None:
    headers = key()
    first = await api.post("/runs", json={"n_steps": 1}, headers=headers)
    again = await api.post("/runs", json={"n_steps": 1}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    other = await api.post("/runs", json={"n_steps": 2}, headers=headers)
    assert other.status_code == 409
    assert other.json()["errors"][0]["field"] == "Idempotency-Key"
    assert len(await log.read_run(first.json()["run_id"], 0, 10)) == 1


async def test_a_key_sent_at_once_by_many_names_one_run(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    headers = key()
    sent = [api.post("/runs", json={"n_steps": 1 + n % 2}, headers=headers) for n in range(8)]
    answers = await asyncio.gather(*sent)
    assert {answer.status_code for answer in answers} <= {200, 201, 409}
    assert 201 in {answer.status_code for answer in answers}
    (run_id,) = {a.json()["run_id"] for a in answers if a.status_code != 409}
    assert len(await log.read_run(run_id, 0, 10)) == 1


@pytest.mark.parametrize("projected", [False, True])
async def test_a_recorded_text_that_postgres_has_no_text_for_can_be_read(
    api: httpx.AsyncClient, log: PostgresLog, projected: bool
) -> None:
    """It is refused now; a log may hold it, and other facts hold texts of many sources."""
    spec = RunSpec(n_steps=1).recorded()
    spec["rubric"]["criteria"][0]["prompt"] = odd = 'a\0 \\u0000 "'
    run_id = run_id_from(os.urandom(8))
    await append(log, run_id, ev.RunRequested(spec, run_id, "0" * 64))
    await append(log, run_id, f.trial_requested("s0-p0-n0"), ev.RunFailed(odd))
    if projected:
        await project_all(log)
    run = (await api.get(f"/runs/{run_id}")).json()
    assert run["spec"]["rubric"]["criteria"][0]["prompt"] == odd
    trial = (await api.get(f"/trials/{run_id}/s0-p0-n0")).json()
    assert [event["type"] for event in trial["events"]] == ["TrialRequested"]
    assert (await api.get("/runs")).status_code == 200


@pytest.mark.parametrize("projected", [False, True])
async def test_an_answer_is_never_older_than_the_log(
    api: httpx.AsyncClient, log: PostgresLog, projected: bool
) -> None:
    """Whether the read models hold all, nothing, or a part of it."""
    run_id = (await created(api, n_steps=1, prompts_per_step=2, n_samples=1))["run_id"]
    await append(log, run_id, *f.judged_trial("s0-p0-n0"), f.trial_requested("s0-p1-n0"))
    if projected:
        await project_all(log)
    await append(log, run_id, *f.judged_trial("s0-p1-n0")[1:], f.step_requested())
    await append(log, run_id, f.step_applied(), ev.RunCompleted(1, "w1"))
    run = (await api.get(f"/runs/{run_id}")).json()
    schemas.Run.model_validate(run)
    assert (run["state"], run["counts"]["executed"]["judge"]) == ("completed", 2)
    assert run["steps"][0]["state"] == "applied"
    steps = (await api.get(f"/runs/{run_id}/steps")).json()
    assert steps == {"steps": run["steps"], "next_cursor": None}
    await project_all(log)
    assert (await api.get(f"/runs/{run_id}")).json() == run


@pytest.mark.parametrize("limit", [1, 3, 1000])
async def test_steps_are_listed_in_pages_however_much_is_projected(
    api: httpx.AsyncClient, log: PostgresLog, limit: int
) -> None:
    run_id = (await created(api, n_steps=12))["run_id"]
    path = f"/runs/{run_id}/steps"
    steps = [(f.step_requested(n), f.step_applied(n)) for n in range(11)]
    await append(log, run_id, *(fact for step in steps[:5] for fact in step), steps[5][0])
    await project_all(log)
    await append(log, run_id, steps[5][1], *(fact for step in steps[6:] for fact in step))
    for _ in ("behind", "projected"):
        seen: list[schemas.Step] = []
        cursor: str | None = None
        while True:
            params: dict[str, Any] = {"limit": limit} | ({"cursor": cursor} if cursor else {})
            answer = await api.get(path, params=params)
            page = schemas.StepPage.model_validate(answer.json())
            seen += page.steps
            cursor = page.next_cursor
            if cursor is None:
                break
        assert [step.step for step in seen] == list(range(11))
        assert {step.state for step in seen} == {"applied"}
        only = (await api.get(path, params={"step": 5, "limit": limit})).json()
        assert [step["weights_version"] for step in only["steps"]] == [6]
        assert only["next_cursor"] is None
        assert (await api.get(path, params={"step": 11})).json()["steps"] == []
        await project_all(log)
    for params in ({"step": -1}, {"limit": 0}, {"cursor": "WyJ4Il0"}, {"cursor": "WyLCsiJd"}):
        answer = await api.get(path, params=params)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, *params)


async def test_a_run_shows_its_first_thousand_steps_and_where_to_go_on(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run_id = (await created(api, n_steps=2000))["run_id"]
    facts = [f.step_applied(n) for n in range(1001)]
    await append(log, run_id, *facts[:500])
    await append(log, run_id, *facts[500:1000])
    await project_all(log)
    run = (await api.get(f"/runs/{run_id}")).json()
    assert (len(run["steps"]), run["steps_cursor"]) == (1000, None)
    await append(log, run_id, facts[1000])
    run = (await api.get(f"/runs/{run_id}")).json()
    schemas.Run.model_validate(run)
    assert (len(run["steps"]), run["steps"][-1]["step"]) == (1000, 999)
    assert (run["steps_applied"], run["current_step"]) == (1001, 1000)
    params = {"cursor": run["steps_cursor"]}
    rest = (await api.get(f"/runs/{run_id}/steps", params=params)).json()
    assert [step["step"] for step in rest["steps"]] == [1000]


async def test_a_long_tail_is_left_to_a_projector_that_gets_on(
    api: httpx.AsyncClient, log: PostgresLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_PAGE", 10)
    monkeypatch.setattr(reader, "_MOST_FOLDED", 30)
    await project_all(log)
    run_id = (await created(api, n_steps=100))["run_id"]
    await append(log, run_id, *(f.step_applied(n) for n in range(25)))
    run = (await api.get(f"/runs/{run_id}")).json()
    assert run["steps_applied"] == 25, "nobody projects, and it is not too much to fold"
    await append(log, run_id, *(f.step_applied(n) for n in range(25, 100)))
    for path in ("", "/steps", "/trials", "/weights/latest"):
        answer = await api.get(f"/runs/{run_id}{path}")
        assert (answer.status_code, answer.json()["title"]) == (503, "Temporarily unavailable")
    monkeypatch.setattr(reader, "_STALLED_S", 4)
    monkeypatch.setattr(reader, "_TAIL_S", 4)
    asked = asyncio.create_task(api.get(f"/runs/{run_id}"))
    await project_all(log)
    run = (await asked).json()
    assert (run["steps_applied"], len(run["steps"])) == (100, 100)


async def test_a_long_tail_is_not_waited_for_where_nobody_leads(
    api: httpx.AsyncClient, log: PostgresLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = (await created(api, n_steps=100))["run_id"]
    fence = await own(log)
    await append(log, run_id, *(f.step_applied(n) for n in range(50)))
    async with log.database.connection() as connection:
        await connection.execute(queries.LEAVE_PARTITION, 0, log.incarnation, fence)
    monkeypatch.setattr(reader, "_PAGE", 10)
    monkeypatch.setattr(reader, "_STALLED_S", 3600)
    monkeypatch.setattr(reader, "_TAIL_S", 3600)
    assert (await api.get(f"/runs/{run_id}")).json()["steps_applied"] == 50


async def test_runs_are_listed_in_pages_newest_first(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    team = os.urandom(4).hex()
    made = [await created(api, labels={"team": team, "n": str(n % 2)}) for n in range(5)]
    await append(log, made[0]["run_id"], ev.RunCompleted(0, "x"))
    await project_all(log)
    newest = [run["run_id"] for run in reversed(made)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params: dict[str, Any] = {"label": f"team={team}", "limit": 2}
        answer = await api.get("/runs", params=params | ({"cursor": cursor} if cursor else {}))
        page = schemas.RunPage.model_validate(answer.json())
        seen += [run.run_id for run in page.runs]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == newest
    both = {"label": [f"team={team}", "n=0"], "state": "running"}
    found = (await api.get("/runs", params=both)).json()["runs"]
    assert [run["run_id"] for run in found] == [newest[0], newest[2]]
    assert found[0]["labels"] == {"team": team, "n": "0"}
    assert (found[0]["n_steps"], found[0]["steps_applied"]) == (3, 0)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"state": "done"}, "state"),
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"label": "team"}, "label"),
        ({"cursor": "%%%"}, "cursor"),
        ({"cursor": "WyJ4IiwieSJd"}, "cursor"),
        ({"cursor": cursor_of("0001-01-01T00:00:00+14:00", "a")}, "cursor"),
        ({"cursor": cursor_of("9999-12-31T23:59:59-14:00", "a")}, "cursor"),
    ],
)
async def test_a_list_that_cannot_be_meant(
    api: httpx.AsyncClient, params: dict[str, Any], field: str
) -> None:
    answer = await api.get("/runs", params=params)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999999+00:00"])
async def test_a_list_goes_on_after_any_time(api: httpx.AsyncClient, at: str) -> None:
    answer = await api.get("/runs", params={"cursor": cursor_of(at, "a"), "limit": 1})
    assert answer.status_code == 200


async def test_a_run_is_paused_resumed_and_cancelled_each_once(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run_id = (await created(api))["run_id"]
    steering = ("resume", "pause", "pause", "resume", "resume", "pause", "cancel", "cancel")
    states: list[str] = []
    for verb in steering:
        answer = await api.post(f"/runs/{run_id}/{verb}")
        assert answer.status_code == 200
        schemas.Run.model_validate(answer.json())
        states.append(answer.json()["state"])
    on_the_log = [event.type for event in await log.read_run(run_id, 1, 100)]
    running, paused, cancelled = "running", "paused", "cancelled"
    assert states == [
        *(running, paused, paused, running, running, paused, cancelled, cancelled),
    ]
    wanted = ["RunRequested", "RunPaused", "RunResumed", "RunPaused", "RunCancelled"]
    assert on_the_log[-len(wanted) + 1 :] == wanted[1:]
    for verb in ("pause", "resume"):
        answer = await api.post(f"/runs/{run_id}/{verb}")
        assert (answer.status_code, answer.json()["title"]) == (409, "The run has ended")


async def test_steering_by_many_at_once_records_it_once(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run_id = (await created(api))["run_id"]
    answers = await asyncio.gather(*(api.post(f"/runs/{run_id}/pause") for _ in range(8)))
    assert {answer.json()["state"] for answer in answers} == {"paused"}
    types = [event.type for event in await log.read_run(run_id, 0, 100)]
    assert types == ["RunRequested", "RunPaused"]


async def test_a_pause_that_lost_to_the_budgets_pause_finds_the_run_paused(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run_id = (await created(api))["run_id"]
    await append(log, run_id, ev.RunPaused(0, "budget"))
    answer = await api.post(f"/runs/{run_id}/pause")
    assert (answer.status_code, answer.json()["pause_reason"]) == (200, "budget")
    assert (await api.post(f"/runs/{run_id}/resume")).json()["state"] == "running"


async def test_a_completed_run_cannot_be_cancelled(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run_id = (await created(api))["run_id"]
    await append(log, run_id, ev.RunCompleted(0, "x"))
    assert (await api.post(f"/runs/{run_id}/cancel")).status_code == 409


async def test_a_version_of_weights_has_one_address(api: httpx.AsyncClient) -> None:
    run_id = (await created(api))["run_id"]
    assert (await api.get(f"/runs/{run_id}/weights/0")).json()["version"] == 0
    for version in ("00", "01", "+0", "-0", "0" * 30_000):
        answer = await api.get(f"/runs/{run_id}/weights/{version}")
        assert (answer.status_code, answer.json()["title"]) == (404, "No such version")
        assert len(answer.content) < 5000


async def test_what_is_unknown_is_not_found(api: httpx.AsyncClient) -> None:
    parts = ("", "/steps", "/trials", "/events", "/weights/0", "/weights/latest")
    for run in ("r-abcdefghijklmnop", "nonsense", "r-ABCDEFGHIJKLMNOP", "%00", "r-%0a"):
        for part in parts:
            answer = await api.get(f"/runs/{run}{part}")
            assert (answer.status_code, answer.json()["title"]) == (404, "No such run")
            assert answer.headers["content-type"] == "application/problem+json"
