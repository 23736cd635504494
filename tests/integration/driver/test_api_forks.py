"""Forks through the API: what is recorded, what is refused, and what a plan says."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from support.api import key
from support.facts import trial_requested
from trialog.driver.api import schemas
from trialog.driver.api.fork_schemas import Plan
from trialog.proto import events as ev
from trialog.spine.log import Append, new_event
from trialog.spine.postgres.log import PostgresLog


async def asked(api: httpx.AsyncClient, **settings: Any) -> str:
    made = await api.post("/runs", json=settings, headers=key())
    assert made.status_code == 201, made.text
    return made.json()["run_id"]


async def request_of(log: PostgresLog, run_id: str) -> ev.RunRequested:
    event = await log.at_slot(run_id, "run")
    assert event is not None
    fact = event.fact()
    assert isinstance(fact, ev.RunRequested)
    return fact


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ({"rubric": "v9"}, {}, "rubric"),
    ({"rubric": {"name": "x", "criteria": []}}, {}, "rubric.criteria"),
    (
        {"rubric": {"name": "x", "criteria": [{"name": "a", "weight": -1}]}},
        {},
        "rubric.criteria.0.weight",
    ),
    ({}, {"rubric": "v9"}, "rubric"),
    ({"rubric": "v1"}, {"rubric": "v1"}, "rubric"),
    ({"crash": True}, {}, "crash"),
    ({"parent": "r-abcdefghijklmnop"}, {}, "parent"),
    ({"n_steps": 0}, {}, "n_steps"),
    ({"lr": "2"}, {}, "lr"),
    ({"timeouts": {"judge": 1}}, {}, "timeouts.judge"),
    ({"faults": []}, {}, "faults"),
    ({"faults": {"straggler": 3}}, {}, "faults.straggler"),
    ({"from_step": 1}, {}, "from_step"),
    ({"from_step": -1}, {}, "from_step"),
    ({"from_step": "0"}, {}, "from_step"),
    ({"from_step": True}, {}, "from_step"),
    ({}, {"mode": "rejudge"}, "mode"),
    ({}, {"mode": "rescore"}, "mode"),
    ({"lr": 1.0}, {"mode": "rescore"}, "lr"),
    ({"judge": {"model": ""}}, {}, "judge.model"),
    ({"budget": {"usd": -1}}, {}, "budget.usd"),
    ([], {}, ""),
]


@pytest.mark.parametrize(("body", "query", "field"), REFUSED)
@pytest.mark.parametrize("dry", [False, True])
async def test_a_fork_that_cannot_be_meant_names_its_field_and_leaves_nothing(
    api: httpx.AsyncClient, log: PostgresLog, body: Any, query: Any, field: str, dry: bool
) -> None:
    run_id = await asked(api)
    end = await log.end(0)
    params = query | ({"dry_run": "true"} if dry else {})
    answer = await api.post(f"/runs/{run_id}/fork", json=body, params=params)
    assert answer.status_code == 422, answer.text
    problem = schemas.Problem.model_validate(answer.json())
    assert field in [error.field for error in problem.errors]
    assert await log.end(0) == end


async def test_nan_weights_and_broken_json_are_refused(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run_id = await asked(api)
    end = await log.end(0)
    headers = {"Content-Type": "application/json"}
    for body, status in (
        (b'{"rubric": {"name": "x", "criteria": [{"name": "a", "weight": NaN}]}}', (400, 422)),
        (b'{"lr": 1.0, "lr": 2.0}', (422,)),
        (b'{"lr": ', (400,)),
        (b'{"lr": 1e999}', (422,)),
    ):
        answer = await api.post(f"/runs/{run_id}/fork", content=body, headers=headers)
        assert answer.status_code in status, (body, answer.text)
    plain = await api.post(f"/runs/{run_id}/fork", content=b"{}")
    assert plain.status_code == 415
    assert await log.end(0) == end


async def test_no_run_has_no_fork(api: httpx.AsyncClient, log: PostgresLog) -> None:
    end = await log.end(0)
    for run_id in ("r-aaaaaaaaaaaaaaaa", "nonsense"):
        answer = await api.post(f"/runs/{run_id}/fork", json={})
        assert answer.status_code == 404
    assert await log.end(0) == end


async def test_a_fork_pins_its_ancestors_and_changes_what_it_is_told(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    faults = {"judge_flake_rate": 0.3, "crash_driver_after_step": 1, "hang": ["s2-p0-n0"]}
    run_id = await asked(api, faults=faults, labels={"team": "a"}, timeouts={"trial_s": 5.0})
    end = await log.end(0)
    made = await api.post(
        f"/runs/{run_id}/fork",
        params={"rubric": "v2-efficiency"},
        json={"n_steps": 2, "timeouts": {"judge_s": 7.0}, "labels": {"branch": "b"}},
    )
    assert made.status_code == 201 and made.json()["parent"] == run_id
    fork = made.json()["run_id"]
    fact = await request_of(log, fork)
    assert (fact.parent, fact.root, fact.mode, fact.from_step) == (run_id, run_id, "recompute", 0)
    assert fact.lineage == [ev.Provenance(run_id, end)]
    spec = fact.spec
    assert (spec["rubric"]["name"], spec["n_steps"]) == ("v2-efficiency", 2)
    assert (spec["timeouts"]["trial_s"], spec["timeouts"]["judge_s"]) == (5.0, 7.0)
    assert spec["labels"] == {"team": "a", "branch": "b"}
    assert spec["faults"]["judge_flake_rate"] == 0.3
    assert spec["faults"]["crash_driver_after_step"] is None
    assert spec["faults"]["hang"] == [], "a trial that the fork does not have"
    deeper = await api.post(f"/runs/{fork}/fork")
    grandchild = await request_of(log, deeper.json()["run_id"])
    assert [one.run_id for one in grandchild.lineage] == [fork, run_id]
    assert grandchild.lineage[1].position == end and grandchild.root == run_id


async def test_a_key_answers_its_fork_again(api: httpx.AsyncClient) -> None:
    run_id, headers = await asked(api), key()
    first = await api.post(f"/runs/{run_id}/fork", json={"lr": 1.0}, headers=headers)
    await asked(api)  # the log goes on
    again = await api.post(f"/runs/{run_id}/fork", json={"lr": 1.0}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["run_id"] == again.json()["run_id"]
    other = await api.post(f"/runs/{run_id}/fork", json={"lr": 1.5}, headers=headers)
    assert other.status_code == 409
    answers = await asyncio.gather(
        *(api.post(f"/runs/{run_id}/fork", headers=headers | key()) for _ in range(4))
    )
    assert len({answer.json()["run_id"] for answer in answers}) == 4


async def test_a_misspelt_parameter_starts_no_run(api: httpx.AsyncClient, log: PostgresLog) -> None:
    run_id = await asked(api)
    end = await log.end(0)
    for path in (
        f"/runs/{run_id}/fork?dry-run=true",
        f"/runs/{run_id}/fork?rubrik=v1",
        f"/runs/{run_id}/fork?from_step=1",
        "/runs?dry_run=true",
        f"/runs/{run_id}/pause?now=1",
    ):
        answer = await api.post(path, json={})
        name = path.partition("?")[2].partition("=")[0]
        assert answer.status_code == 422, path
        assert [error["field"] for error in answer.json()["errors"]] == [name]
    assert (await api.get("/runs?lable=team=a")).status_code == 422
    assert await log.end(0) == end


async def test_a_fork_has_the_budget_that_its_parent_has_now(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run_id = await asked(api, budget={"judge_calls": 7})
    for verb, body in (("pause", None), ("resume", {"budget": {"judge_calls": 20}})):
        assert (await api.post(f"/runs/{run_id}/{verb}", json=body)).status_code == 200
    fork = (await api.post(f"/runs/{run_id}/fork")).json()
    assert (await request_of(log, fork["run_id"])).spec["budget"]["judge_calls"] == 20


async def test_a_key_is_known_again_wherever_its_parent_is_by_now(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run_id, headers = await asked(api, budget={"judge_calls": 7}), key()
    await log.commit(Append([new_event(run_id, trial_requested("s0-p0-n0"))]))
    how: dict[str, Any] = {"params": {"mode": "rescore", "rubric": "v1"}, "headers": headers}
    first = await api.post(f"/runs/{run_id}/fork", **how)
    assert first.status_code == 201 and first.json()["n_steps"] == 1
    applied = ev.StepApplied(0, "k", True, "p", "d" * 64, 1, 6, 0, 1.0, 2.0)
    requested = trial_requested("s1-p0-n0", 1)
    await log.commit(Append([new_event(run_id, applied), new_event(run_id, requested)]))
    again = await api.post(f"/runs/{run_id}/fork", **how)
    assert (again.status_code, again.json()["run_id"]) == (200, first.json()["run_id"])
    how["params"] = {"mode": "rescore", "rubric": "v2-efficiency"}
    assert (await api.post(f"/runs/{run_id}/fork", **how)).status_code == 409


async def test_a_body_that_is_too_deep_or_no_text_is_refused_as_elsewhere(
    api: httpx.AsyncClient,
) -> None:
    run_id = await asked(api)
    headers = {"Content-Type": "application/json"}
    deep = [b'{"labels":' + b"[" * n + b"]" * n + b"}" for n in (300, 960, 2000, 50_000)]
    for body in (*deep, '{"lr": 1.0}'.encode("utf-16")):
        for path in ("/runs", f"/runs/{run_id}/fork", f"/runs/{run_id}/fork?dry_run=true"):
            answer = await api.post(path, content=body, headers=headers)
            assert answer.status_code == 400, (path, body[:20], answer.text)
    for step in ("9" * 5000, "1" + "0" * 20):
        body = f'{{"from_step": {step}}}'.encode()
        answer = await api.post(f"/runs/{run_id}/fork", content=body, headers=headers)
        assert answer.status_code in (400, 422)


async def test_a_plan_refuses_what_its_fork_would(api: httpx.AsyncClient) -> None:
    run_id = await asked(api)
    criteria = [{"name": f"c{n}", "prompt": "x" * 19_000} for n in range(32)]
    body = {"rubric": {"name": "long", "criteria": criteria}}
    for params in ({}, {"dry_run": "true"}):
        answer = await api.post(f"/runs/{run_id}/fork", json=body, params=params)
        assert answer.status_code == 413


async def test_from_step_needs_steps_and_their_worlds(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run_id = await asked(api)
    applied = ev.StepApplied(0, "k", True, "p", "d" * 64, 1, 6, 0, 1.0, 2.0)
    await log.commit(Append([new_event(run_id, applied)]))
    made = await api.post(f"/runs/{run_id}/fork", json={"from_step": 1, "n_samples": 4})
    assert made.status_code == 201
    assert (await request_of(log, made.json()["run_id"])).from_step == 1
    for body, field in (
        ({"from_step": 2}, "from_step"),
        ({"from_step": 1, "n_worlds": 5}, "n_worlds"),
    ):
        answer = await api.post(f"/runs/{run_id}/fork", json=body)
        assert answer.status_code == 422
        assert [error["field"] for error in answer.json()["errors"]] == [field]


async def test_a_plan_of_a_run_that_has_nothing_executes_all(
    api: httpx.AsyncClient, log: PostgresLog
) -> None:
    run_id = await asked(api)
    end = await log.end(0)
    answer = await api.post(f"/runs/{run_id}/fork", params={"dry_run": "true"})
    assert answer.status_code == 200
    plan = answer.json()
    assert (plan["dry_run"], plan["parent"], plan["position"]) == (True, run_id, end)
    assert plan["totals"]["build_world"] == {"recovered": 0, "executed": 3, "unknown": 0}
    assert plan["totals"]["generate"]["executed"] + plan["totals"]["generate"]["unknown"] == 18
    assert plan["estimate"]["judge_calls"]["at_most"] == 18
    assert plan["estimate"]["usd"] is None and "no judge call" in plan["estimate"]["basis"]
    assert await log.end(0) == end
    Plan.model_validate_json(answer.content)
