"""Trials, trajectories and weights over HTTP, against the log in Postgres."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from support import facts as f
from support.api import project_all, serve_api
from trialog.driver.api import schemas
from trialog.proto import events as ev
from trialog.proto.canonical import canonical
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.log import Append, new_event
from trialog.spine.postgres.log import PostgresLog

TRAJECTORY = {"turns": [{"doc": 3, "found": True}], "answer": "ab", "files": ["answer.txt"]}


@pytest.fixture
async def api(log: PostgresLog, blobs: PostgresBlobs) -> AsyncGenerator[httpx.AsyncClient]:
    async with serve_api(log, blobs, None) as served:
        yield served.client


async def append(log: PostgresLog, run_id: str, *facts: ev.Fact) -> None:
    (await log.commit(Append([new_event(run_id, fact) for fact in facts]))).check()


async def pages(api: httpx.AsyncClient, run_id: str, **params: Any) -> list[dict[str, Any]]:
    """Return the trials of all pages, each page held to its model."""
    found: list[dict[str, Any]] = []
    while True:
        answer = await api.get(f"/runs/{run_id}/trials", params=params)
        page = schemas.TrialPage.model_validate(answer.json())
        found += answer.json()["trials"]
        if page.next_cursor is None:
            return found
        params["cursor"] = page.next_cursor


async def test_a_trial_shows_what_its_agent_did(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs, run_id: str
) -> None:
    blob = await blobs.put(canonical(TRAJECTORY))
    await append(log, run_id, f.run_requested(run_id), *f.judged_trial("s0-p0-n0", blob=blob))
    answer = await api.get(f"/trials/{run_id}/s0-p0-n0")
    trial = answer.json()
    schemas.TrialDetail.model_validate(trial)
    assert (trial["turns"], trial["answer"], trial["files_written"]) == (
        TRAJECTORY["turns"],
        "ab",
        ["answer.txt"],
    )
    assert (trial["state"], trial["attempts"]) == ("judged", 1)
    positions = {event["type"]: event["position"] for event in trial["events"]}
    assert trial["provenance"] == {
        action: {"state": "executed", "run_id": run_id, "position": positions[kind]}
        for action, kind in (
            ("generate", "TrajectoryRecorded"),
            ("verify", "TrialVerified"),
            ("judge", "Judged"),
        )
    }
    assert trial["judge_calls"] == {"executed": 1, "recovered": 0}
    assert (trial["judge_score"], trial["reward"], trial["verified"]) == (1.0, 2.0, True)
    assert [event["type"] for event in trial["events"]] == [
        "TrialRequested",
        "TrajectoryRecorded",
        "TrialVerified",
        "JudgeCallStarted",
        "JudgeCallRecorded",
        "Judged",
    ]
    answer = await api.get(f"/trials/{run_id}/s0-p0-n0/trajectory")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == TRAJECTORY


async def test_what_has_not_happened_is_null_and_a_lost_blob_costs_its_turns_only(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs, run_id: str
) -> None:
    blob, broken = await blobs.put(canonical(TRAJECTORY)), await blobs.put(b"no JSON")
    await append(
        log,
        run_id,
        f.run_requested(run_id),
        f.trial_requested("s0-p0-n0"),
        *f.judged_trial("s0-p1-n0", blob="f" * 64),
        *f.judged_trial("s0-p2-n0", blob=blob),
        f.trial_requested("s0-p3-n0"),
        ev.TrialAttemptFailed("s0-p3-n0", "generate", 0, "timeout", message="300 s"),
        ev.TrialSkipped("s0-p3-n0", 0, "retries_exhausted"),
        *f.judged_trial("s0-p4-n0", blob=broken),
    )
    open_, lost, kept, skipped, odd = await pages(api, run_id)
    assert (odd["reward"], odd["turns"]) == (2.0, None)
    assert (open_["state"], open_["turns"], open_["reward"]) == ("requested", None, None)
    assert (lost["state"], lost["turns"]) == ("judged", None)
    assert kept["turns"] == TRAJECTORY["turns"]
    assert (skipped["reward"], skipped["judge_score"]) == (None, None)
    assert skipped["failures"] == [
        {"stage": "generate", "failure": "timeout", "error": None, "message": "300 s", "n": 0}
    ]
    answer = await api.get(f"/trials/{run_id}/s0-p0-n0/trajectory")
    assert (answer.status_code, answer.json()["title"]) == (404, "No such trajectory")
    answer = await api.get(f"/trials/{run_id}/s0-p1-n0/trajectory")
    assert (answer.status_code, answer.json()["title"]) == (500, "Bytes are missing")


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_pages_hold_each_trial_once_however_much_is_projected(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str, limit: int
) -> None:
    """In order of the text; what the read models hold differs from what the log says."""
    names = sorted(f"s{step}-p{n}-n0" for step in range(2) for n in (0, 1, 2, 10, 11))
    requests = [f.trial_requested(name, int(name[1])) for name in names]
    await append(log, run_id, f.run_requested(run_id, prompts_per_step=12), *requests[:7])
    await project_all(log)
    late = [*f.judged_trial(names[0])[1:], *f.judged_trial(names[2])[1:]]
    await append(log, run_id, *late, *requests[7:])
    for _ in ("behind", "projected"):
        found = await pages(api, run_id, limit=limit)
        assert [trial["trial_id"] for trial in found] == names
        judged = await pages(api, run_id, limit=limit, state="judged")
        assert [trial["trial_id"] for trial in judged] == [names[0], names[2]]
        step = await pages(api, run_id, limit=limit, step=1, state="requested")
        assert [trial["trial_id"] for trial in step] == names[5:]
        assert (await api.get(f"/trials/{run_id}/{names[9]}")).status_code == 200
        await project_all(log)


async def test_what_is_no_trial_is_not_found(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str
) -> None:
    await append(log, run_id, f.run_requested(run_id))
    for trial_id in ("s0-p0-n0", "s0-p0", "..", "%2e%2e", "s00-p0-n0", "%00", "s0-p0-n0%0a"):
        for part in ("", "/trajectory"):
            answer = await api.get(f"/trials/{run_id}/{trial_id}{part}")
            assert answer.status_code == 404, trial_id
            assert answer.headers["content-type"] == "application/problem+json"
    for params in ({"state": "done"}, {"step": -1}, {"limit": 0}):
        answer = await api.get(f"/runs/{run_id}/trials", params=params)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, *params)
    answer = await api.get(f"/runs/{run_id}/trials", params={"cursor": "WyIuLi8uLiJd"})
    assert answer.status_code == 404


async def test_weights_of_every_version(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs
) -> None:
    run_id = (await api.post("/runs", json={"n_worlds": 1})).json()["run_id"]
    path = f"/runs/{run_id}/weights"
    first = schemas.Weights.model_validate((await api.get(f"{path}/0")).json())
    assert first.doc_prior == {"w0": [1.0] * 8}
    assert (await api.get(f"{path}/latest")).json() == first.model_dump()
    assert (await api.get(f"{path}/0")).text.count("1.0") == 8

    prior = [1.0, 4.666, 0.1 + 0.2, 1.0, 1.0, 1.0, 1.0, 7.33]
    digest = await blobs.put(canonical({"doc_prior": {"w0": prior}}))
    untrained = f.step_applied(1, trained=False, digest=digest, prior_digest=digest)
    await append(log, run_id, f.step_applied(0, digest=digest), untrained)
    second = (await api.get(f"{path}/1")).json()
    assert second == {"version": 1, "digest": digest, "doc_prior": {"w0": prior}}
    assert (await api.get(f"{path}/latest")).json() == second | {"version": 2}
    for version in ("3", "-1", "1.0", "newest", "9" * 30, "²"):
        answer = await api.get(f"{path}/{version}")
        assert (answer.status_code, answer.json()["title"]) == (404, "No such version")


async def test_a_fault_of_ours_is_a_problem_without_a_traceback(
    api: httpx.AsyncClient, log: PostgresLog, blobs: PostgresBlobs, run_id: str
) -> None:
    odd = await blobs.put(b"[]")
    await append(log, run_id, f.run_requested(run_id), f.step_applied(0, digest=odd))
    answer = await api.get(f"/runs/{run_id}/weights/1")
    assert (answer.status_code, answer.json()["title"]) == (500, "Internal error")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "doc_prior" not in answer.text and "Traceback" not in answer.text


async def test_a_run_of_ten_thousand_events_is_read_while_nobody_projects(
    api: httpx.AsyncClient, log: PostgresLog, run_id: str
) -> None:
    n = 1100
    facts: list[ev.Fact] = [f.run_requested(run_id, prompts_per_step=n)]
    for index in range(n):
        facts += f.judged_trial(f"s0-p{index}-n0")
    for start in range(0, len(facts), 500):
        await append(log, run_id, *facts[start : start + 500])
    run = (await api.get(f"/runs/{run_id}")).json()
    assert run["counts"]["executed"]["judge"] == n
    found = await pages(api, run_id, limit=1000)
    assert len({trial["trial_id"] for trial in found}) == n
