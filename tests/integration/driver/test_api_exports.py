"""Exports and the tasks of a run over HTTP, against the log in Postgres."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import msgspec
import pytest
from support import exports as x
from support import facts as f
from support.api import append, project_all, serve_api
from trialog.driver.api import export_schemas, schemas, task_results_schemas
from trialog.proto import events as ev
from trialog.proto.canonical import canonical
from trialog.proto.tasks import manifest
from trialog.proto.tasks.files import Entry
from trialog.proto.tasks.manifest import TaskRef
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.tasks.packing import pack

TOML = b'schema_version = "1.4"\nartifacts = ["/app/out.txt"]\n'


@pytest.fixture
async def api(log: PostgresLog, blobs: PostgresBlobs) -> AsyncGenerator[httpx.AsyncClient]:
    async with serve_api(log, blobs, None) as served:
        yield served.client


async def requested(blobs: PostgresBlobs, run_id: str, **settings: Any) -> ev.RunRequested:
    """A run of two tasks, their files and manifest kept."""
    tasks: list[TaskRef] = []
    for name in ("hello", "other"):
        files = {"task.toml": Entry("file", TOML), "instruction.md": Entry("file", name.encode())}
        tasks.append(TaskRef(name, await blobs.put(pack(files)), "e", "a", "s", "v"))
    kept = await blobs.put(manifest.encode(tuple(tasks)))
    spec = x.spec(tasks={"path": "/srv/tasks", "manifest": kept, "count": 2}, **settings)
    return ev.RunRequested(spec.recorded(), run_id, "0" * 64)


async def tried(blobs: PostgresBlobs, trial_id: str, reward: float = 1.0) -> list[ev.Fact]:
    """The facts of a judged trial."""
    state = x.tar({"app/out.txt": b"out", "logs/agent/log.txt": b"log"})
    record = x.tar({"reward.txt": b"1\n"}, gz=True)
    atif = await blobs.put(msgspec.json.encode(x.SAID))
    part = {"step": None, "atif": atif, "error": "", "message": "", "n_turns": 1, "result": {}}
    content = {"turns": [], "answer": None, "files": [], "steps": [part]}
    blob = await blobs.put(canonical(content))
    recorded = ev.TrajectoryRecorded(
        trial_id, 0, "k", "meaning", blob, 1, 0, state=await blobs.put(state)
    )
    verified = x.graded(trial_id, reward, record=await blobs.put(record))
    return [f.trial_requested(trial_id), recorded, verified, x.judged(trial_id, reward)]


SKIPPED: list[ev.Fact] = [
    f.trial_requested("s0-p1-n0"),
    ev.TrialAttemptFailed("s0-p1-n0", "verify", 0, "task", error="RewardFileNotFoundError"),
    ev.TrialSkipped("s0-p1-n0", 0, "retries_exhausted", error="RewardFileNotFoundError"),
]


async def files(api: httpx.AsyncClient, path: str) -> dict[str, bytes]:
    answer = await api.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-tar")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        found = {one.name: archive.extractfile(one) for one in archive}
    return {name: file.read() for name, file in found.items() if file is not None}


async def test_a_trial_comes_as_a_folder(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs, run_id: str
) -> None:
    await append(log, run_id, await requested(blobs, run_id), *await tried(blobs, x.TRIAL))
    found = await files(api, f"/runs/{run_id}/trials/{x.TRIAL}/files")
    assert list(found)[-1] == "result.json"
    assert found["artifacts/app/out.txt"] == b"out"  # as task.toml declares it
    assert {"agent/log.txt", "agent/trajectory.json", "verifier/reward.txt"} <= set(found)
    assert json.loads(found["result.json"])["task_name"] == "hello"
    job = await files(api, f"/runs/{run_id}/files")
    assert json.loads(job["config.json"])["datasets"] == [{"path": "/srv/tasks"}]
    assert json.loads(job["result.json"])["stats"]["n_completed_trials"] == 1


async def test_what_cannot_be_exported_says_why(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs, run_id: str
) -> None:
    await append(log, run_id, await requested(blobs, run_id), f.trial_requested(x.TRIAL))
    answer = await api.get(f"/runs/{run_id}/trials/{x.TRIAL}/files")
    assert (answer.status_code, answer.json()["title"]) == (409, "The trial has not ended")
    for trial_id in ("s0-p1-n0", "%2e%2e", "s0-p0", "s0-p0-n0%0a"):
        answer = await api.get(f"/runs/{run_id}/trials/{trial_id}/files")
        assert answer.status_code == 404, trial_id
    for part in ("files", "rows", "tasks"):
        assert (await api.get(f"/runs/r-aaaaaaaaaaaaaaaa/{part}")).status_code == 404
    assert (await api.get(f"/runs/{run_id}/rows?cursor=WyIuLi8uLiJd")).status_code == 404


@pytest.mark.parametrize("projected", [False, True])
async def test_tasks_have_a_reward_each_and_unscored_trials_apart(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs, run_id: str, projected: bool
) -> None:
    await append(log, run_id, await requested(blobs, run_id, n_samples=2))
    await append(log, run_id, *await tried(blobs, x.TRIAL), *SKIPPED)
    await append(log, run_id, *await tried(blobs, "s0-p0-n1", 0.5))
    if projected:
        await project_all(log)
    answer = await api.get(f"/runs/{run_id}/tasks")
    found = task_results_schemas.TaskResults.model_validate_json(answer.content)
    hello, other = found.tasks
    assert (hello.task, hello.trials, hello.scored, hello.mean_reward) == ("hello", 2, 2, 0.75)
    assert (other.task, other.unscored, other.mean_reward) == ("other", 1, None)
    assert other.errors == {"RewardFileNotFoundError": 1}
    assert (found.totals.mean_reward, found.totals.tasks_scored) == (0.75, 1)
    trials = (await api.get(f"/runs/{run_id}/trials")).json()["trials"]
    assert [(one["task"], one["mode"], one["error"]) for one in trials] == [
        ("hello", "separate", None),
        ("hello", "separate", None),
        ("other", None, "RewardFileNotFoundError"),
    ]
    one = (await api.get(f"/trials/{run_id}/{x.TRIAL}")).json()
    schemas.TrialDetail.model_validate(one)
    assert (one["task"], one["rewards"]) == ("hello", {"reward": 1.0})


async def test_a_trial_shows_the_steps_of_its_task(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs, run_id: str
) -> None:
    late: dict[str, Any] = {
        "error": "AgentTimeoutError",
        "message": "the agent took more than 3 s",
    }
    part = await x.part(blobs, step="build", n_turns=2, **late)
    record = await blobs.put(x.tar({"steps/build/reward.txt": b"0.5"}, gz=True))
    facts = [
        f.trial_requested(x.TRIAL),
        await x.tried(blobs, part, error=late["error"]),
        x.graded(reward=0.5, record=record, error=late["error"]),
        x.judged(reward=0.5),
    ]
    await append(log, run_id, await requested(blobs, run_id), *facts)
    found = (await api.get(f"/trials/{run_id}/{x.TRIAL}")).json()
    schemas.TrialDetail.model_validate(found)
    assert found["error_message"] == late["message"]
    told = {"name": "build", "played": True, "n_turns": 2, "rewards": {"reward": 0.5}}
    assert found["steps"] == [told | late | {"min_reward": None, "stopped": False}]


async def rows(api: httpx.AsyncClient, run_id: str, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        answer = await api.get(f"/runs/{run_id}/rows", params=params)
        page = export_schemas.RowPage.model_validate_json(answer.content)
        found += answer.json()["rows"]
        if page.next_cursor is None:
            return found
        params["cursor"] = page.next_cursor


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_rows_are_of_trials_that_can_be_trained_on(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs, run_id: str, limit: int
) -> None:
    await append(log, run_id, await requested(blobs, run_id, n_samples=2))
    await append(log, run_id, *await tried(blobs, x.TRIAL), *SKIPPED)
    await append(log, run_id, f.trial_requested("s0-p0-n1"))
    (only,) = await rows(api, run_id, limit=limit)
    assert (only["trial_id"], only["instruction"], only["reward"]) == (x.TRIAL, "hello", 1.0)
    assert (only["completion_token_ids"], only["loss_mask"]) == ([4, 5], [1, 1])
    every = await rows(api, run_id, limit=limit, all="true")
    assert [(one["trial_id"], one["reward_valid"]) for one in every] == [
        (x.TRIAL, True),
        ("s0-p1-n0", False),
    ]


async def test_a_step_that_was_recovered_whole_is_exported_with_what_its_run_has(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs, run_id: str
) -> None:
    """Of a grandparent's trajectory and a parent's verdict it is the parent's that counts."""
    fork = "r-ponmlkjihgfedcba"
    parent = await requested(blobs, run_id)
    facts = await tried(blobs, x.TRIAL)
    grand = ev.Provenance("r-gggggggggggggggg", 3)
    facts[1] = msgspec.structs.replace(facts[1], provenance=grand)
    facts[2] = msgspec.structs.replace(facts[2], provenance=grand)
    await append(log, run_id, parent, *facts)
    whole = f.step_applied(0, whole=True, provenance=ev.Provenance(run_id, 9), trained=False)
    await append(log, fork, await requested(blobs, fork), whole)
    found = await files(api, f"/runs/{fork}/trials/{x.TRIAL}/files")
    result = json.loads(found["result.json"])
    assert result["verifier_result"] == {"rewards": {"reward": 1.0}}
    assert result["trial_uri"] == f"trialog://{fork}/{x.TRIAL}"
    assert result["verifier"] is None  # it was done elsewhere
    assert [one["reward"] for one in await rows(api, fork)] == [1.0]


async def test_a_lost_manifest_costs_the_names_only(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs, run_id: str
) -> None:
    lost = ev.RunRequested(x.spec().recorded(), run_id, "0" * 64)
    await append(log, run_id, lost, *await tried(blobs, x.TRIAL))
    (one,) = (await api.get(f"/runs/{run_id}/trials")).json()["trials"]
    assert (one["task"], one["reward"]) == (None, 1.0)
    assert (await rows(api, run_id))[0]["task"] == "w0"


async def test_the_reference_world_is_exported_too(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs, run_id: str
) -> None:
    kept = {"turns": [{"doc": 3, "found": True}], "answer": "ab", "files": ["answer.txt"]}
    blob = await blobs.put(canonical(kept))
    await append(log, run_id, f.run_requested(run_id), *f.judged_trial(x.TRIAL, blob=blob))
    found = await files(api, f"/runs/{run_id}/trials/{x.TRIAL}/files")
    assert json.loads(found["result.json"])["verifier_result"] == {"rewards": {"reward": 2.0}}
    (one,) = await rows(api, run_id)
    assert (one["task"], one["reward"], one["turns"][1]["source"]) == ("w0", 2.0, "agent")
    (task,) = (await api.get(f"/runs/{run_id}/tasks")).json()["tasks"]
    assert (task["task"], task["mean_reward"], task["rewards"]) == ("w0", 2.0, {})


async def test_a_page_ends_early_where_its_rows_are_large(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs, run_id: str
) -> None:
    said = x.document({"source": "agent", "message": "x" * 3_000_000})
    atif = await blobs.put(msgspec.json.encode(said))
    part = {"step": None, "atif": atif, "result": {}}
    blob = await blobs.put(canonical({"turns": [], "answer": None, "files": [], "steps": [part]}))
    await append(log, run_id, await requested(blobs, run_id, n_samples=4))
    names = [f"s0-p0-n{n}" for n in range(4)]
    for name in names:
        await append(log, run_id, *f.judged_trial(name, blob=blob))
    first = (await api.get(f"/runs/{run_id}/rows")).json()
    assert [one["trial_id"] for one in first["rows"]] == names[:2]
    assert [one["trial_id"] for one in await rows(api, run_id)] == names
