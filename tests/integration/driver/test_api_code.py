"""A new run pins the code that it counts on, as it is known then."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator

import httpx
import pytest
from support.api import created, key
from trialog.proto import events as ev
from trialog.spine.codes import register
from trialog.spine.postgres.log import PostgresLog

NAMES = ("agent:policy", "verifier:reference", "learner:bandit", "check:correct")
CHECKED = {
    "name": "right",
    "scoring": "check",
    "criteria": [{"name": "right", "check": "correct"}],
}


@pytest.fixture
async def code(log: PostgresLog) -> AsyncGenerator[dict[str, str]]:
    """Versions that nobody else has told of. The table is the whole session's."""
    told = {name: os.urandom(6).hex() for name in NAMES}
    await register(log.database, "tests", told)
    yield told


async def pinned(log: PostgresLog, run_id: str) -> dict[str, str]:
    event = await log.at_slot(run_id, "run")
    assert event is not None
    fact = event.fact()
    assert isinstance(fact, ev.RunRequested)
    return fact.code


async def fork(api: httpx.AsyncClient, run_id: str, **settings: object) -> str:
    answer = await api.post(f"/runs/{run_id}/fork", json=settings)
    assert answer.status_code == 201, answer.text
    return answer.json()["run_id"]


async def test_a_run_pins_the_code_of_its_keys(
    api: httpx.AsyncClient, log: PostgresLog, code: dict[str, str]
) -> None:
    run_id = (await created(api, n_steps=1))["run_id"]
    assert await pinned(log, run_id) == {name: code[name] for name in NAMES[:3]}
    run_id = (await created(api, n_steps=1, rubric=CHECKED))["run_id"]
    assert await pinned(log, run_id) == code


async def test_what_a_run_declares_is_not_pinned(
    api: httpx.AsyncClient, log: PostgresLog, code: dict[str, str]
) -> None:
    checked = CHECKED | {"criteria": [{"name": "right", "check": "correct", "version": "1"}]}
    run = await created(api, n_steps=1, rubric=checked, versions={"agent": "2"})
    assert set(await pinned(log, run["run_id"])) == {"verifier:reference", "learner:bandit"}


async def test_a_fork_pins_the_code_of_now(
    api: httpx.AsyncClient, log: PostgresLog, code: dict[str, str]
) -> None:
    parent = (await created(api, n_steps=1))["run_id"]
    await register(log.database, "tests", {"agent:policy": "changed"})
    child = await fork(api, parent)
    assert (await pinned(log, child))["agent:policy"] == "changed"
    assert (await pinned(log, parent))["agent:policy"] == code["agent:policy"]


async def test_a_key_names_one_run_though_the_code_changed_between(
    api: httpx.AsyncClient, log: PostgresLog, code: dict[str, str]
) -> None:
    headers = key()
    first = await api.post("/runs", json={"n_steps": 1}, headers=headers)
    await register(log.database, "tests", {"agent:policy": "changed"})
    again = await api.post("/runs", json={"n_steps": 1}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["run_id"] == again.json()["run_id"]
