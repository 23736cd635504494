"""Runs that name their rubric: what it says then is on the log whole."""

from __future__ import annotations

import json
import os
from typing import Any

import httpx
import pytest
from support.api import created, key
from trialog.driver.api import schemas
from trialog.proto.rubric import BUILT_IN
from trialog.spine.postgres.log import PostgresLog


@pytest.fixture
async def mine(api: httpx.AsyncClient) -> str:
    """A rubric of three versions, whose one weight is the version."""
    name = f"t{os.urandom(6).hex()}"
    for version in (1, 2, 3):
        await put(api, name, version)
    return name


async def put(api: httpx.AsyncClient, name: str, weight: int) -> None:
    body = {"criteria": [{"name": "a", "weight": weight, "scale": [1, 5], "prompt": "Clear?"}]}
    assert (await api.put(f"/rubrics/{name}", json=body)).status_code == 201


async def recorded(log: PostgresLog, run_id: str) -> dict[str, Any]:
    event = await log.at_slot(run_id, "run")
    assert event is not None
    return json.loads(event.data)["spec"]["rubric"]


@pytest.mark.parametrize(("suffix", "weight"), [("", 3.0), ("@1", 1.0), ("@3", 3.0)])
async def test_the_log_holds_what_was_named_then(
    api: httpx.AsyncClient, log: PostgresLog, mine: str, suffix: str, weight: float
) -> None:
    run = await created(api, rubric=mine + suffix)
    assert run["rubric"] == mine, "the name stays the rubric's"
    before = await recorded(log, run["run_id"])
    assert (before["name"], before["criteria"][0]["weight"]) == (mine, weight)
    assert before["criteria"][0]["scale"] == [1.0, 5.0]
    await put(api, mine, 4)
    assert await recorded(log, run["run_id"]) == before
    assert (await api.get(f"/runs/{run['run_id']}")).json()["spec"]["rubric"] == before


@pytest.mark.parametrize("name", BUILT_IN)
async def test_what_is_built_in_may_be_named_with_its_version(
    api: httpx.AsyncClient, log: PostgresLog, name: str
) -> None:
    plain, exact = [(await created(api, rubric=name + v))["run_id"] for v in ("", "@1")]
    assert await recorded(log, plain) == await recorded(log, exact)


@pytest.mark.parametrize(
    ("rubric", "words"),
    [
        ("nobodys", "known are instant, "),
        ("nobodys@1", "PUT /rubrics/nobodys"),
        ("{mine}@4", "the latest is 3"),
        ("{mine}@0", "expected NAME or NAME@VERSION"),
        ("{mine}@x", "expected NAME or NAME@VERSION"),
        ("v1@2", "version 1 alone"),
        ("Mine", "expected NAME or NAME@VERSION"),
        ("", "expected NAME or NAME@VERSION"),
        ("a\0b", "expected NAME or NAME@VERSION"),
        ("x" * 900_000, "expected NAME or NAME@VERSION"),
    ],
)
async def test_an_unknown_rubric_is_named_and_leaves_nothing(
    api: httpx.AsyncClient, log: PostgresLog, mine: str, rubric: str, words: str
) -> None:
    end = await log.end(0)
    answer = await api.post("/runs", json={"rubric": rubric.format(mine=mine)})
    problem = schemas.Problem.model_validate(answer.json())
    assert answer.status_code == 422
    assert [error.field for error in problem.errors] == ["rubric"]
    assert words in problem.detail
    assert len(answer.content) < 3000
    assert await log.end(0) == end


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ('{"rubric": "MINE", "n_steps": 0}', 422, "n_steps: Input should be"),
        ('{"rubric": "MINE", "lr": NaN}', 422, "lr: Input should be a finite"),
        ('{"rubric": "MINE", "lr": 1e999}', 422, "lr: Input should be a finite"),
        ('{"rubric": "MINE", "n_step": 1}', 422, "n_step: Extra"),
        ('{"rubric": "MINE", "n_steps": "1"}', 422, "n_steps: Input should be a valid integer"),
        ('{"rubric": "MINE", "n_steps": 1.5}', 422, "n_steps: Input should be a valid integer"),
        ('{"rubric": "MINE", "rubric": "v1"}', 422, "rubric: the key is given twice"),
        ('{"rubric": "MINE", "n_steps": ' + "9" * 5000 + "}", 400, "number"),
        ('{"rubric": "MINE"', 400, "line 1"),
    ],
)
async def test_what_else_is_wrong_is_said_as_ever(
    api: httpx.AsyncClient, mine: str, body: str, status: int, words: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await api.post("/runs", content=body.replace("MINE", mine), headers=headers)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["detail"]


async def test_a_key_answers_its_run_also_when_a_later_version_stands(
    api: httpx.AsyncClient, log: PostgresLog, mine: str
) -> None:
    """A client whose answer got lost sends the same again."""
    headers, body = key(), {"rubric": mine, "n_steps": 1}
    first = await api.post("/runs", json=body, headers=headers)
    await put(api, mine, 4)
    again = await api.post("/runs", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["run_id"] == first.json()["run_id"]
    rubric = await recorded(log, first.json()["run_id"])
    assert rubric["criteria"][0]["weight"] == 3
    same = await api.post("/runs", json=body | {"rubric": f"{mine}@3"}, headers=headers)
    assert same.status_code == 409, "another body, though it means the same now"
    for other in ({"rubric": f"{mine}@4"}, {"rubric": "v1"}, {"n_steps": 2}):
        refused = await api.post("/runs", json=body | other, headers=headers)
        assert (refused.status_code, refused.json()["title"]) == (409, "Idempotency-Key reused")


async def test_a_key_of_a_whole_rubric_is_no_key_of_its_name(
    api: httpx.AsyncClient, mine: str
) -> None:
    headers, whole = key(), {"name": mine, "criteria": [{"name": "b"}]}
    assert (await api.post("/runs", json={"rubric": whole}, headers=headers)).status_code == 201
    refused = await api.post("/runs", json={"rubric": mine}, headers=headers)
    assert refused.status_code == 409
