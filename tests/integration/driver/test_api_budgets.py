"""Budgets over HTTP: shown with a run, changed as it is resumed, refused where they are none."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from support import facts as f
from support.api import append, created, project_all
from trialog.driver.api import schemas
from trialog.proto import events as ev
from trialog.proto.work import CALL, call_work_key
from trialog.spine.budget import Cost
from trialog.spine.log import Claim, Finish, NewWork, new_event
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.presence import new_incarnation

NONE = {"judge_calls": None, "tokens": None, "usd": None}
WORST = Cost(200, 900)
NOTHING = {"judge_calls": 0, "tokens": 0, "usd": 0.0}


async def called(log: PostgresLog, run_id: str, name: str) -> str:
    """Claim a call and record its reply of 120 tokens and 300 millionths; return the answer."""
    started = ev.JudgeCallStarted(name, name, 1, "all", "m")
    key = call_work_key(run_id, name)
    work = NewWork(CALL, run_id, WORST)
    claim = Claim(key, 60_000, 0, [new_event(run_id, started)], work)
    verdict = await log.commit(claim)
    if verdict.ok:
        reply = new_event(run_id, f.judge_call(name))
        (await log.commit(Finish(key, verdict.fence, [reply], paid=Cost(120, 300)))).check()
    return verdict.answer


async def shown(api: httpx.AsyncClient, run_id: str) -> Any:
    answer = await api.get(f"/runs/{run_id}")
    schemas.Run.model_validate(answer.json())
    return answer.json()["budget"]


async def test_a_run_is_shown_with_its_limits_and_what_counts_against_them(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run = await created(api, budget={"judge_calls": 5, "usd": 0.25})
    run_id = run["run_id"]
    limits = {"judge_calls": 5, "tokens": None, "usd": 0.25}
    assert run["budget"] == {"limits": limits, "spent": NOTHING}
    assert await called(log, run_id, "a") == "ok"
    spent = {"judge_calls": 1, "tokens": 120, "usd": 0.0003}
    assert await shown(api, run_id) == {"limits": limits, "spent": spent}
    # A call that may have been made counts as what it might have cost; its cost is not known.
    gone = PostgresLog(log.database, new_incarnation())
    started = new_event(run_id, ev.JudgeCallStarted("b", "b", 1, "all", "m"))
    work = NewWork(CALL, run_id, WORST)
    await gone.commit(Claim(call_work_key(run_id, "b"), 1, 0, [started], work))
    await log.database.fetch("select void_incarnations($1)", [gone.incarnation])
    await gone.close()
    spent = {"judge_calls": 2, "tokens": 320, "usd": 0.0012}
    assert (await shown(api, run_id))["spent"] == spent
    cost = (await api.get(f"/runs/{run_id}")).json()["cost"]
    assert (cost["judge_calls"], cost["usd"]) == (1, 0.0003)
    await project_all(log)
    assert await shown(api, run_id) == {"limits": limits, "spent": spent}


async def test_a_run_without_limits_shows_what_it_spent(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run = await created(api)
    assert run["budget"] == {"limits": NONE, "spent": NOTHING}
    await called(log, run["run_id"], "a")
    spent = {"judge_calls": 1, "tokens": 120, "usd": 0.0003}
    assert await shown(api, run["run_id"]) == {"limits": NONE, "spent": spent}


async def test_a_paused_run_is_resumed_with_another_budget(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run_id = (await created(api, budget={"judge_calls": 1, "tokens": 9000}))["run_id"]
    assert [await called(log, run_id, name) for name in "ab"] == ["ok", "unfunded"]
    await append(log, run_id, ev.RunPaused(0, "budget.judge_calls: 1 of 1 are spent"))
    body = {"budget": {"judge_calls": 2, "usd": 2.5}}
    resumed = (await api.post(f"/runs/{run_id}/resume", json=body)).json()
    limits = {"judge_calls": 2, "tokens": 9000, "usd": 2.5}
    assert (resumed["state"], resumed["pause_reason"]) == ("running", None)
    assert resumed["budget"]["limits"] == limits
    (event,) = [e for e in await log.read_run(run_id, 0, 100) if e.type == "RunResumed"]
    assert event.fact() == ev.RunResumed(0, limits), "the whole budget is on the log"
    assert [await called(log, run_id, name) for name in "bc"] == ["ok", "unfunded"]
    # What the run was asked to do is unchanged, and what it does with it is not.
    assert resumed["spec"]["budget"] == {"judge_calls": 1, "tokens": 9000, "usd": None}
    await api.post(f"/runs/{run_id}/pause")
    await api.post(f"/runs/{run_id}/resume", json={"budget": {"judge_calls": None}})
    assert (await shown(api, run_id))["limits"] == limits | {"judge_calls": None}
    assert await called(log, run_id, "c") == "ok"
    await project_all(log)
    assert (await shown(api, run_id))["limits"] == limits | {"judge_calls": None}


@pytest.mark.parametrize("body", [None, {}, {"budget": {}}, {"budget": {"judge_calls": 3}}])
async def test_resuming_without_a_change_records_none(
    api: httpx.AsyncClient, log: PostgresLog, body: Any
) -> None:
    run_id = (await created(api, budget={"judge_calls": 3}))["run_id"]
    await api.post(f"/runs/{run_id}/pause")
    sent = {} if body is None else {"json": body}
    assert (await api.post(f"/runs/{run_id}/resume", **sent)).json()["state"] == "running"
    last = (await log.read_run(run_id, 0, 100))[-1].fact()
    assert last == ev.RunResumed(0)
    assert (await shown(api, run_id))["limits"]["judge_calls"] == 3


async def test_a_running_runs_budget_cannot_change_but_a_request_sent_again_is_answered(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run_id = (await created(api, budget={"judge_calls": 3}))["run_id"]
    more = {"budget": {"judge_calls": 4}}
    refused = await api.post(f"/runs/{run_id}/resume", json=more)
    problem = schemas.Problem.model_validate(refused.json())
    assert (refused.status_code, problem.errors[0].field) == (409, "budget")
    assert "pause it, then resume it" in problem.detail
    assert len(await log.read_run(run_id, 0, 100)) == 1
    await api.post(f"/runs/{run_id}/pause")
    for _ in range(2):
        answer = await api.post(f"/runs/{run_id}/resume", json=more)
        assert (answer.status_code, answer.json()["state"]) == (200, "running")
    assert len(await log.read_run(run_id, 0, 100)) == 3
    await api.post(f"/runs/{run_id}/cancel")
    ended = await api.post(f"/runs/{run_id}/resume", json=more)
    assert (ended.status_code, ended.json()["title"]) == (409, "The run has ended")


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"budget": {"judge_call": 3}}, 422, "budget.judge_call"),
        ({"budgets": {"judge_calls": 3}}, 422, "budgets"),
        ({"budget": {"judge_calls": -1}}, 422, "budget.judge_calls"),
        ({"budget": {"judge_calls": "3"}}, 422, "budget.judge_calls"),
        ({"budget": {"judge_calls": 3.5}}, 422, "budget.judge_calls"),
        ({"budget": {"tokens": 2**54}}, 422, "budget.tokens"),
        ({"budget": {"usd": -0.5}}, 422, "budget.usd"),
        ({"budget": {"usd": True}}, 422, "budget.usd"),
        ({"budget": None}, 422, "budget"),
        ({"budget": 3}, 422, "budget"),
        ([], 422, ""),
        (b'{"budget": {"usd": 1, "usd": 2}}', 422, "budget.usd"),
        (b'{"budget": {"usd": NaN}}', 422, "budget.usd"),
        (b'{"budget": ', 400, None),
    ],
)
async def test_what_cannot_be_meant_is_refused_by_name_and_records_nothing(
    api: httpx.AsyncClient, log: PostgresLog, body: Any, status: int, field: str | None
) -> None:
    run_id = (await created(api))["run_id"]
    await api.post(f"/runs/{run_id}/pause")
    kind = {"Content-Type": "application/json"}
    sent: dict[str, Any] = {"content": body, "headers": kind}
    sent = sent if isinstance(body, bytes) else {"json": body}
    answer = await api.post(f"/runs/{run_id}/resume", **sent)
    assert answer.status_code == status, answer.text
    if field is not None:
        assert answer.json()["errors"][0]["field"] == field
    recorded = [event.type for event in await log.read_run(run_id, 0, 100)]
    assert recorded == ["RunRequested", "RunPaused"]
    assert (await api.get(f"/runs/{run_id}")).json()["state"] == "paused"


async def test_a_body_that_is_no_json_by_its_type_is_refused(api: httpx.AsyncClient) -> None:
    run_id = (await created(api))["run_id"]
    answer = await api.post(f"/runs/{run_id}/resume", content=b"budget=3")
    assert answer.status_code == 415
