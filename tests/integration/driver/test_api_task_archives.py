"""Uploads of tasks over HTTP: named by content, limited, refused whole."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
from support.api import Api, serve_api
from support.task_api import TAR, asked, body, put, refused, serve_tasks, tasks_of
from support.task_folders import TOML, archived, written
from trialog.driver.api.task_schemas import TaskArchive
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


@pytest.mark.parametrize("zipped", [False, True])
async def test_an_upload_is_named_by_what_it_holds(
    api: httpx.AsyncClient, blobs: PostgresBlobs, zipped: bool
) -> None:
    first = await put(api, archived("b", "a", zipped=zipped))
    assert first.status_code == 200, first.text
    TaskArchive.model_validate(first.json())
    assert [one["task"] for one in first.json()["tasks"]] == ["a", "b"]
    assert (await put(api, archived("a", "b"))).json() == first.json()
    digest = first.json()["archive"]
    run = await asked(api, body("") | {"tasks": {"archive": digest}})
    assert run["spec"]["tasks"] == {
        "path": None,
        "archive": digest,
        "manifest": digest,
        "count": 2,
    }
    assert [task.name for task in await tasks_of(blobs, run)] == ["a", "b"]


async def test_an_upload_and_the_folder_are_the_same_tasks(
    api: httpx.AsyncClient, tasks: Path
) -> None:
    for script in tasks.rglob("*.sh"):
        script.chmod(0o644)  # archived() keeps no modes
    run = await asked(api, body(tasks))
    uploaded = (await put(api, archived("a", "b"))).json()["archive"]
    assert run["spec"]["tasks"]["manifest"] == uploaded


async def test_the_tasks_of_a_run_can_be_run_again(api: httpx.AsyncClient, tasks: Path) -> None:
    run = await asked(api, body(tasks))
    again = {"tasks": {"manifest": run["spec"]["tasks"]["manifest"]}}
    other = await asked(api, body("") | again | {"agent": "nop"})
    assert other["spec"]["tasks"]["count"] == 2


async def test_an_upload_says_which_tasks_could_not_run(api: httpx.AsyncClient) -> None:
    public = {"task.toml": TOML.replace("no-network", "public")}
    kept = (await put(api, archived("a", changes=public))).json()
    (one,) = kept["tasks"]
    assert not one["runs"] and "network: public" in one["mend"]
    sent = body("") | {"tasks": {"archive": kept["archive"]}}
    assert "[environment].network_mode is public" in (await refused(api, sent))["tasks[0]"]
    assert "have no network" in (await refused(api, sent | {"network": "public"}))["tasks[0]"]
    await asked(api, sent | {"network": "public", "provider": "docker", "images": {}})


@pytest.mark.parametrize(
    ("data", "field", "said"),
    [
        (b"no tar", "", "cannot be read"),
        (archived(), "", "holds no task"),
        (archived("a")[:1500], "", "cut short"),
        (archived("a", changes={"../x": b"evil"}), "", "leads out"),
        (archived("a", "b", changes={"task.toml": "["}), "tasks[0]", "a, b: task.toml: is no TOML"),
    ],
)
async def test_a_broken_upload_is_refused_whole(
    api: httpx.AsyncClient, data: bytes, field: str, said: str
) -> None:
    answer = await put(api, data)
    assert answer.status_code == 422
    errors = {error["field"]: error["message"] for error in answer.json()["errors"]}
    assert said in errors[field]


async def test_uploads_are_limited_as_sent_and_unpacked(
    api: httpx.AsyncClient, tmp_path: Path
) -> None:
    async def endless() -> AsyncGenerator[bytes]:
        for _ in range(100):
            yield os.urandom(100_000)

    bomb = archived("a", changes={"tests/zeros": b"\0" * 5_000_000}, zipped=True)
    assert len(bomb) < 100_000
    for content in (bomb, b"x" * 2_000_001, endless()):
        answer = await api.put("/task-archives", content=content, headers=TAR)
        assert answer.status_code == 413, answer.text
    assert not any((tmp_path / "spool").iterdir())


async def test_an_upload_may_be_larger_than_other_bodies(
    log: PostgresLog, blobs: PostgresBlobs
) -> None:
    large = archived("a", changes={"tests/data": os.urandom(50_000)})
    async with serve_api(log, blobs, None, max_body_bytes=20_000) as small:
        assert (await put(small.client, large)).status_code == 200
        answer = await small.client.post("/runs", json={"labels": {"a": "x" * 30_000}})
        assert answer.status_code == 413


async def test_an_upload_says_what_it_is(api: httpx.AsyncClient) -> None:
    answer = await api.put("/task-archives", content=archived("a"))
    assert answer.status_code == 415
    answer = await api.put("/task-archives", json={"a": 1})
    assert answer.status_code == 415
