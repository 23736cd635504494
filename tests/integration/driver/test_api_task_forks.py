"""Forks of runs of tasks over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
from support.api import Api, key
from support.task_api import asked, body, put, refused, serve_tasks, tasks_of
from support.task_folders import archived, written
from trialog.proto import runspec
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.bus import Bus
from trialog.spine.postgres.log import PostgresLog


@pytest.fixture
async def served(
    log: PostgresLog, blobs: PostgresBlobs, bus: Bus, tmp_path: Path
) -> AsyncGenerator[Api]:
    """The API, with one folder below which tasks may be read."""
    async with serve_tasks(log, blobs, bus, tmp_path) as api:
        yield api


@pytest.fixture
def api(served: Api) -> httpx.AsyncClient:
    return served.client


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder of two tasks, b and a."""
    for name in ("b", "a"):
        written(tmp_path / "tasks" / name)
    return tmp_path / "tasks"


async def test_a_fork_has_its_parents_tasks_or_others_in_their_order(
    api: httpx.AsyncClient, blobs: PostgresBlobs, tasks: Path
) -> None:
    parent = await asked(api, body(tasks, prompts_per_step=1))
    where = f"/runs/{parent['run_id']}/fork"
    same = (await api.post(where, json={})).json()
    assert same["spec"]["tasks"] == parent["spec"]["tasks"]
    written(tasks / "a0")
    (tasks / "a" / "tests" / "test.sh").write_text("echo 0.5 > /logs/verifier/reward.txt\n")
    forked = (await api.post(where, json={"tasks": {"path": str(tasks)}})).json()
    spec = runspec.load(forked["spec"])
    assert (spec.n_worlds, spec.n_steps, spec.prompts_per_step) == (3, 3, 1)
    before, after = await tasks_of(blobs, parent), await tasks_of(blobs, forked)
    assert [task.name for task in after] == ["a", "b", "a0"]
    assert after[1] == before[1]
    assert after[0].agent == before[0].agent and after[0].verifier != before[0].verifier
    uploaded = (await put(api, archived("b", "z"))).json()["archive"]
    fewer = (await api.post(where, json={"tasks": {"archive": uploaded}})).json()
    assert [task.name for task in await tasks_of(blobs, fewer)] == ["b", "z"]
    assert fewer["spec"]["tasks"]["path"] is None
    assert fewer["spec"]["n_steps"] == 2


async def test_a_forks_settings_are_checked_against_every_task(
    api: httpx.AsyncClient, tasks: Path
) -> None:
    written(tasks / "c", {"solution/solve.sh": None})
    parent = await asked(api, body(tasks, agent="nop"))
    where = f"/runs/{parent['run_id']}/fork"
    assert "c: solution/solve.sh" in (await refused(api, {"agent": "oracle"}, where))["tasks[2]"]
    errors = await refused(api, {"tasks": {"path": "/etc"}}, where)
    assert "is not below" in errors["tasks.path"]
    for wrong, field in (
        ({"tasks": None}, "tasks"),
        ({"prompts_per_step": "x"}, "prompts_per_step"),
        ({"n_steps": 5}, "n_steps"),
        ({"learner": "bandit"}, "learner"),
        ({"tasks": {"path": 3}}, "tasks.path"),
    ):
        assert field in await refused(api, wrong, where), wrong


async def test_a_fork_is_of_its_parents_kind(api: httpx.AsyncClient, tasks: Path) -> None:
    plain = (await api.post("/runs", json={})).json()
    errors = await refused(api, body(tasks), f"/runs/{plain['run_id']}/fork")
    assert "another kind" in errors["tasks"]


async def test_a_forks_key_is_answered_when_its_folder_is_gone(
    api: httpx.AsyncClient, tasks: Path, tmp_path: Path
) -> None:
    parent = await asked(api, body(tasks))
    where, headers = f"/runs/{parent['run_id']}/fork", key()
    sent = {"tasks": {"path": str(tasks)}}
    forked = await api.post(where, json=sent, headers=headers)
    assert forked.status_code == 201
    tasks.rename(tmp_path / "gone")
    again = await api.post(where, json=sent, headers=headers)
    assert (again.status_code, again.json()["run_id"]) == (200, forked.json()["run_id"])


async def test_a_dry_run_of_other_tasks_records_nothing(
    api: httpx.AsyncClient, log: PostgresLog, tasks: Path
) -> None:
    parent = await asked(api, body(tasks))
    before = await log.end(0)
    where = f"/runs/{parent['run_id']}/fork?dry_run=true"
    answer = await api.post(where, json={"tasks": {"path": str(tasks)}})
    assert answer.status_code == 200 and answer.json()["dry_run"], answer.text
    assert await log.end(0) == before
