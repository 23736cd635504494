"""Runs of tasks over HTTP: folders, uploads, refusals before anything runs, forks."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.api import Api, key, serve_api
from support.task_folders import STEPS, TOML, archived, written
from trialog.driver.api.task_schemas import TaskArchive
from trialog.proto import runspec
from trialog.proto.tasks import manifest
from trialog.proto.tasks.manifest import Manifest
from trialog.proto.tasks.task import read_task
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.bus import Bus
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.tasks.folders import read_folder
from trialog.spine.tasks.packing import unpack

IMAGES = {"debian:bookworm-slim": "host"}
TAR = {"Content-Type": "application/x-tar"}


@pytest.fixture
async def served(
    log: PostgresLog, blobs: PostgresBlobs, bus: Bus, tmp_path: Path
) -> AsyncGenerator[Api]:
    """The API, with one folder below which tasks may be read."""
    (tmp_path / "tasks").mkdir()
    spool = tmp_path / "spool"
    spool.mkdir()
    settings: dict[str, Any] = {"task_roots": (tmp_path / "tasks",), "spool_folder": spool}
    async with serve_api(log, blobs, bus, max_archive_bytes=2_000_000, **settings) as api:
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


def body(path: Path | str, **more: Any) -> dict[str, Any]:
    return {"tasks": {"path": str(path)}, "agent": "oracle", "images": IMAGES} | more


async def asked(api: httpx.AsyncClient, body: dict[str, Any], **more: Any) -> Any:
    answer = await api.post("/runs", json=body, **more)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def refused(api: httpx.AsyncClient, sent: dict[str, Any], path: str = "/runs") -> Any:
    """Return the refusal's messages by field."""
    answer = await api.post(path, json=sent)
    assert answer.status_code == 422, answer.text
    return {error["field"]: error["message"] for error in answer.json()["errors"]}


async def tasks_of(blobs: PostgresBlobs, run: Any) -> Manifest:
    return manifest.decode(await blobs.get(run["spec"]["tasks"]["manifest"]))


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
        ({"n_steps": 9}, "n_steps", "are 1"),
        ({"tasks": {}}, "tasks", "give the path"),
        ({"tasks": {"path": ""}}, "tasks.path", "at least 1"),
        ({"tasks": "x"}, "tasks", "object"),
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


async def put(api: httpx.AsyncClient, data: bytes, **more: Any) -> httpx.Response:
    return await api.put("/task-archives", content=data, headers=TAR, **more)


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
    await asked(api, sent | {"network": "public"})


@pytest.mark.parametrize(
    ("data", "field", "said"),
    [
        (b"no tar", "", "cannot be read"),
        (archived(), "", "holds no task"),
        (archived("a")[:1500], "", "cut short"),
        (archived("a", changes={"../x": b"evil"}), "", "leads out"),
        (archived("a", "b", changes={"task.toml": "["}), "tasks[1]", "b: task.toml: is no TOML"),
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


async def test_a_multi_step_task_is_kept_as_one(
    api: httpx.AsyncClient, blobs: PostgresBlobs, tasks: Path
) -> None:
    written(tasks / "steps", STEPS)
    run = await asked(api, body(tasks / "steps"))
    (kept,) = await tasks_of(blobs, run)
    files = unpack(await blobs.get(kept.blob))
    assert read_task("steps", files).config.steps[1].name == "two"
