"""Runs of tasks over HTTP: folders, and refusals before anything runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.api import Api, key, serve_api
from support.task_api import asked, body, put, refused, serve_tasks, tasks_of
from support.task_folders import STEPS, TOML, archived, written
from trialog.driver.api import task_runs
from trialog.proto import runspec
from trialog.proto.tasks.task import read_task
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.bus import Bus
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.tasks.folders import read_folder
from trialog.spine.tasks.packing import unpack


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


async def test_a_run_of_a_folder_holds_its_tasks_by_content(
    api: httpx.AsyncClient, blobs: PostgresBlobs, tasks: Path
) -> None:
    run = await asked(api, body(tasks))
    spec = runspec.load(run["spec"])
    assert spec.tasks is not None and (spec.tasks.path, spec.tasks.count) == (str(tasks), 2)
    assert (spec.n_worlds, spec.prompts_per_step, spec.n_steps) == (2, 2, 1)
    kept = await tasks_of(blobs, run)
    assert [task.name for task in kept] == ["a", "b"]
    for task in kept:
        files = read_task(task.name, read_folder(tasks / task.name)).files
        assert unpack(await blobs.get(task.blob)) == files
    assert kept[0].verifier == kept[1].verifier


async def test_a_run_of_one_task(api: httpx.AsyncClient, blobs: PostgresBlobs, tasks: Path) -> None:
    run = await asked(api, body(tasks / "a", n_samples=3))
    assert [task.name for task in await tasks_of(blobs, run)] == ["a"]
    assert (run["spec"]["n_samples"], run["spec"]["prompts_per_step"]) == (3, 1)


async def test_the_folder_is_not_needed_again(
    api: httpx.AsyncClient, tasks: Path, tmp_path: Path
) -> None:
    headers = key()
    run = await asked(api, body(tasks), headers=headers)
    tasks.rename(tmp_path / "gone")
    again = await api.post("/runs", json=body(tasks), headers=headers)
    assert (again.status_code, again.json()["run_id"]) == (200, run["run_id"])
    other = await api.post("/runs", json=body(tasks, n_samples=2), headers=headers)
    assert other.status_code == 409


async def test_a_key_is_of_what_was_sent_not_of_what_the_folder_holds(
    api: httpx.AsyncClient, tasks: Path
) -> None:
    headers = key()
    run = await asked(api, body(tasks), headers=headers)
    written(tasks / "c")
    again = await api.post("/runs", json=body(tasks), headers=headers)
    assert (again.status_code, again.json()["spec"]) == (200, run["spec"])


async def test_paths_outside_of_the_roots_are_refused(
    api: httpx.AsyncClient, tasks: Path, tmp_path: Path
) -> None:
    outside = written(tmp_path / "elsewhere" / "a")
    (tasks / "link").symlink_to(outside)
    for path in (outside, tasks / ".." / "elsewhere", tasks / "link", "/etc", "/nowhere"):
        errors = await refused(api, body(path))
        assert "is not below" in errors["tasks.path"], path
        assert "PUT /task-archives" in errors["tasks.path"]
    assert "must be absolute" in (await refused(api, body("tasks")))["tasks.path"]
    assert (await refused(api, body("\0x")))["tasks.path"]


async def test_without_roots_no_path_is_read(
    log: PostgresLog, blobs: PostgresBlobs, tasks: Path
) -> None:
    async with serve_api(log, blobs, None) as bare:
        errors = await refused(bare.client, body(tasks))
        assert "TRIALOG_TASK_ROOTS names none" in errors["tasks.path"]


async def test_a_task_that_cannot_run_is_named_with_its_mend(
    api: httpx.AsyncClient, tasks: Path
) -> None:
    written(tasks / "c", {"task.toml": TOML + "gpus = 1\n"})
    written(tasks / "d", {"instruction.md": None})
    errors = await refused(api, body(tasks))
    assert set(errors) == {"tasks[2]", "tasks[3]"}
    assert errors["tasks[2]"].startswith("c: [environment].gpus asks for 1 GPU(s); ")
    assert errors["tasks[3]"].startswith("d: instruction.md: is missing; ")


@pytest.mark.parametrize(
    ("more", "field", "said"),
    [
        ({"images": {}}, "tasks[0]", "debian:bookworm-slim is not among the run's images"),
        ({"agent": "policy"}, "agent", "reference world only"),
        ({"learner": "bandit"}, "learner", "must be none"),
        ({"provider": "null"}, "provider", "runs no commands"),
        ({"n_worlds": 7}, "n_worlds", "there are 2 tasks"),
        ({"n_steps": 9}, "n_steps", "make only 1 step"),
        ({"tasks": {}}, "tasks", "give the path"),
        ({"tasks": {"path": ""}}, "tasks.path", "at least 1"),
        ({"tasks": "x"}, "tasks", "say tasks: {path: x}"),
        ({"tasks": 3}, "tasks", "object"),
        ({"tasks": {"archive": "a" * 64}}, "tasks.archive", "there are no tasks under"),
        ({"n_sample": 3}, "n_sample", "not permitted"),
        ({"faults": {"hang": ["s1-p0-n0"]}}, "faults.hang.0", "no trial of this run"),
    ],
)
async def test_what_is_wrong_is_named(
    api: httpx.AsyncClient, tasks: Path, more: dict[str, Any], field: str, said: str
) -> None:
    assert said in (await refused(api, body(tasks) | more))[field]


async def test_an_agent_must_be_named(api: httpx.AsyncClient, tasks: Path) -> None:
    assert "oracle" in (await refused(api, {"tasks": {"path": str(tasks)}}))["agent"]


BROKEN: list[tuple[str, str | bytes | None, str]] = [
    ("task.toml", "[agent]\ntimeout_sec = 0", "task.toml: [agent].timeout_sec must be above 0"),
    ("task.toml", None, "task.toml: is missing"),
    ("instruction.md", b"\xff", "instruction.md: is not UTF-8"),
    ("tests/test.sh", None, "tests/test.sh: is missing"),
]


@pytest.mark.parametrize(("path", "content", "said"), BROKEN)
async def test_a_broken_task_is_named_by_file(
    api: httpx.AsyncClient, tasks: Path, path: str, content: str | bytes | None, said: str
) -> None:
    written(tasks / "broken", {path: content})
    assert said in (await refused(api, body(tasks / "broken")))["tasks[0]"]


async def test_what_is_wrong_with_many_tasks_is_told_once(
    api: httpx.AsyncClient, tasks: Path
) -> None:
    for name in "cdefg":
        written(tasks / name, {"instruction.md": "" if name < "g" else None})
    errors = await refused(api, body(tasks))
    assert errors == {
        "tasks[2]": "c, d, e and 1 more: instruction.md: is empty; say in it what the agent is "
        "to do",
        "tasks[6]": "g: instruction.md: is missing; say in it what the agent is to do",
    }
    archive = archived("a", "b", changes={"instruction.md": ""})
    sent = (await put(api, archive)).json()["errors"]
    assert [(one["field"], one["message"].partition(":")[0]) for one in sent] == [
        ("tasks[0]", "a, b")
    ]


async def test_a_hostile_folder_is_refused_and_not_read(
    api: httpx.AsyncClient, tasks: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("s3cret")
    (tasks / "a" / "tests" / "l").symlink_to(tmp_path / "secret")
    with (tasks / "b" / "huge").open("wb") as file:
        file.truncate(5 << 30)
    errors = await refused(api, body(tasks))
    assert "tests/l: the link" in errors["tasks[0]"] and "leads out" in errors["tasks[0]"]
    assert "huge: has 5368709120 bytes" in errors["tasks[1]"]
    assert "s3cret" not in str(errors)


async def test_nothing_half_done_is_left_of_a_refusal(
    api: httpx.AsyncClient, log: PostgresLog, tasks: Path
) -> None:
    parent = await asked(api, body(tasks))
    where = f"/runs/{parent['run_id']}/fork"
    before, blobs = await log.end(0), await log.database.fetch("select digest from blob")
    written(tasks / "c", {"task.toml": "["})
    await refused(api, body(tasks))
    await refused(api, body(tasks / "a", agent="policy"))
    await refused(api, {"tasks": {"path": str(tasks)}}, where)
    assert (await put(api, archived("a", "b", changes={"task.toml": "["}))).status_code == 422
    assert await log.end(0) == before
    assert await log.database.fetch("select digest from blob") == blobs


async def test_a_multi_step_task_is_kept_as_one(
    api: httpx.AsyncClient, blobs: PostgresBlobs, tasks: Path
) -> None:
    written(tasks / "steps", STEPS)
    run = await asked(api, body(tasks / "steps"))
    (kept,) = await tasks_of(blobs, run)
    files = unpack(await blobs.get(kept.blob))
    assert read_task("steps", files).config.steps[1].name == "two"


async def test_reading_tasks_may_take_longer_than_a_plain_request(
    log: PostgresLog, blobs: PostgresBlobs, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = asyncio.Event()

    async def slowly(*_: Any) -> list[Any]:
        # Beyond the bound of a plain request, which would have been answered 503 by then.
        await asyncio.wait_for(held.wait(), 30)
        return []

    monkeypatch.setattr(task_runs, "verdicts", slowly)
    settings: dict[str, Any] = {"task_roots": (tasks,), "request_s": 1.0}
    async with serve_api(log, blobs, None, **settings) as short:
        asking = asyncio.create_task(short.client.post("/runs", json=body(tasks)))
        loop = asyncio.get_running_loop()
        loop.call_later(2.0, held.set)
        assert (await asking).status_code == 201
