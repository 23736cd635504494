"""A trial as Harbor's trial folder: what is in it, and that harbor itself loads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import exports as x
from support import facts as f
from support import harbor_jobs as harbor
from trialog.driver.export import job
from trialog.driver.export.run import ExportedRun
from trialog.driver.export.tally import Tally
from trialog.proto import events as ev
from trialog.proto.canonical import canonical
from trialog.proto.runspec import RunSpec
from trialog.proto.tasks.config import TaskConfig
from trialog.spine.memory.blobs import MemoryBlobs

CONFIG = TaskConfig.model_validate(
    {"artifacts": ["/app/out", {"source": "/etc/motd", "destination": "said"}, "/none"]}
)


TIMES = {"started_at": 1796040000.5, "finished_at": 1796040001.5}


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


async def good(blobs: MemoryBlobs) -> dict[str, bytes]:
    state = x.tar(
        {
            "logs/agent/log.txt": b"log",
            "logs/agent/trajectory.json": b"theirs",
            "logs/artifacts/a/b.txt": b"b",
            "app/out/one.txt": b"1",
            "etc/motd": b"hi",
            "root/.bashrc": b"no",
        }
    )
    record = x.tar({"reward.txt": b"1\n", "test-stdout.txt": b"ok"}, gz=True)
    facts = [
        f.trial_requested(x.TRIAL),
        await x.tried(blobs, await x.part(blobs, result=TIMES), state=await blobs.put(state)),
        x.graded(record=await blobs.put(record)),
        x.judged(),
    ]
    return await x.exported(blobs, facts, config=CONFIG)


async def test_a_folder_has_what_harbor_has_where_harbor_has_it(blobs: MemoryBlobs) -> None:
    files = await good(blobs)
    assert sorted(files) == [
        "agent/log.txt",
        "agent/trajectory.json",
        "agent/trajectory.sandbox.json",
        "artifacts/app/out/one.txt",
        "artifacts/logs/artifacts/a/b.txt",
        "artifacts/manifest.json",
        "artifacts/said",
        "config.json",
        "result.json",
        "trialog.json",
        "verifier/reward.txt",
        "verifier/test-stdout.txt",
    ]
    assert json.loads(files["agent/trajectory.json"]) == x.SAID
    assert files["agent/trajectory.sandbox.json"] == b"theirs"
    manifest = json.loads(files["artifacts/manifest.json"])
    assert [
        (one["source"], one["destination"], one["type"], one["status"]) for one in manifest
    ] == [
        ("/logs/artifacts", "artifacts/logs/artifacts", "directory", "ok"),
        ("/app/out", "artifacts/app/out", "directory", "ok"),
        ("/etc/motd", "artifacts/said", "file", "ok"),
        ("/none", "artifacts/none", "directory", "failed"),
    ]


async def test_a_result_says_what_the_log_says(blobs: MemoryBlobs) -> None:
    result = json.loads((await good(blobs))["result.json"])
    assert result["verifier_result"] == {"rewards": {"reward": 1.0}}
    assert (result["task_name"], result["task_checksum"]) == ("hello", "b" * 64)
    assert result["config"]["task"] == {"path": "/srv/tasks/hello"}
    assert (result["exception_info"], result["verifier_environment_mode"]) == (None, "separate")
    assert result["agent_info"] == {"name": "oracle", "version": "f" * 12, "model_info": None}
    used = result["agent_result"]
    assert (used["n_input_tokens"], used["n_output_tokens"], used["cost_usd"]) == (3, 2, 0.25)
    assert used["rollout_details"] == [
        {
            "prompt_token_ids": [[1, 2, 3]],
            "completion_token_ids": [[4, 5]],
            "logprobs": [[-0.5, -0.25]],
        }
    ]
    assert result["started_at"] == "2026-11-30T12:00:01.000000+00:00"
    assert result["agent_execution"] == {
        "started_at": "2026-11-30T12:00:00.500+00:00",
        "finished_at": "2026-11-30T12:00:01.500+00:00",
    }
    assert result["verifier"] == {
        "started_at": "2026-11-30T12:00:02.000000+00:00",
        "finished_at": "2026-11-30T12:00:03.000000+00:00",
    }
    assert used["metadata"]["trialog"]["mode"] == "separate"


async def test_an_agent_that_ran_out_of_time_is_graded_all_the_same(blobs: MemoryBlobs) -> None:
    late = "AgentTimeoutError"
    part = await x.part(blobs, error=late, message="the agent took more than 3 s")
    facts = [
        f.trial_requested(x.TRIAL),
        await x.tried(blobs, part, error=late),
        x.graded(error=late, mode="restored"),
        x.judged(),
    ]
    files = await x.exported(blobs, facts)
    result = json.loads(files["result.json"])
    assert files["exception.txt"] == b"AgentTimeoutError: the agent took more than 3 s\n"
    assert result["exception_info"]["exception_type"] == late
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    assert result["verifier_environment_mode"] == "shared"
    assert result["agent_result"]["metadata"]["trialog"]["mode"] == "restored"


async def test_every_attempt_stays_and_a_trial_without_a_verdict_has_no_reward(
    blobs: MemoryBlobs,
) -> None:
    """I11: nothing is scored 0 because its verifier gave nothing."""
    name = "RewardFileNotFoundError"
    record = await blobs.put(x.tar({"test-stdout.txt": b"oops"}, gz=True))
    first = ev.TrialAttemptFailed(x.TRIAL, "generate", 0, "infrastructure", message="no room")
    last = ev.TrialAttemptFailed(x.TRIAL, "verify", 0, "task", error=name, record=record)
    facts = [
        f.trial_requested(x.TRIAL),
        first,
        await x.tried(blobs, await x.part(blobs)),
        last,
        ev.TrialSkipped(x.TRIAL, 0, "retries_exhausted", "no file", error=name, record=record),
    ]
    files = await x.exported(blobs, facts)
    result = json.loads(files["result.json"])
    assert result["verifier_result"] is None
    assert result["exception_info"]["exception_type"] == name
    assert result["exception_info"]["exception_message"] == "retries_exhausted: no file"
    assert files["verifier/test-stdout.txt"] == files["attempts/1/verifier/test-stdout.txt"]
    attempts = [json.loads(files[f"attempts/{n}/attempt.json"]) for n in (0, 1)]
    assert [(a["stage"], a["failure"], a["error"]) for a in attempts] == [
        ("generate", "infrastructure", None),
        ("verify", "task", name),
    ]
    assert files["attempts/0/exception.txt"] == b"infrastructure: no room\n"


async def test_where_an_agents_own_code_broke_is_its_exception(blobs: MemoryBlobs) -> None:
    trace = "Traceback (most recent call last):\n  mine.py, line 3\nKeyError: 'boom'\n"
    record = await blobs.put(x.tar({"exception.txt": trace.encode()}, gz=True))
    broke: dict[str, Any] = {"message": "'boom'", "error": "KeyError", "record": record}
    facts = [
        f.trial_requested(x.TRIAL),
        ev.TrialAttemptFailed(x.TRIAL, "generate", 0, "agent", **broke),
        ev.TrialSkipped(x.TRIAL, 0, "retries_exhausted", **broke),
    ]
    files = await x.exported(blobs, facts)
    assert files["exception.txt"] == files["attempts/0/exception.txt"] == trace.encode()
    assert json.loads(files["result.json"])["exception_info"]["exception_traceback"] == trace
    assert not any(name.startswith(("verifier/", "attempts/0/verifier")) for name in files)


async def test_a_verifier_that_spoke_before_the_judge_failed_gives_no_reward(
    blobs: MemoryBlobs,
) -> None:
    facts = [
        f.trial_requested(x.TRIAL),
        await x.tried(blobs, await x.part(blobs)),
        x.graded(),
        ev.TrialSkipped(x.TRIAL, 0, "retries_exhausted", "the judge is down"),
    ]
    files = await x.exported(blobs, facts)
    result = json.loads(files["result.json"])
    assert result["verifier_result"] is None
    assert result["exception_info"]["exception_type"] == "TrialSkippedError"
    assert json.loads(files["verifier/reward.json"]) == {"reward": 1.0}


async def steps(blobs: MemoryBlobs) -> dict[str, bytes]:
    states = [await blobs.put(x.tar({f"logs/agent/{n}.txt": b"log"})) for n in (0, 1)]
    late = {"error": "VerifierTimeoutError", "rewards": None, "started_at": 1796040002.0}
    parts = [
        await x.part(blobs, step="build", result={"state": states[0], "graded": None}),
        await x.part(blobs, step="serve", result={"state": states[1], "graded": late}),
    ]
    record = {"steps/build/reward.json": b'{"a": 0.5, "b": 1}', "steps/build/reward.txt": b"9"}
    trial = "s0-p1-n0"
    facts = [
        f.trial_requested(trial),
        await x.tried(blobs, *parts, trial_id=trial, state=states[1]),
        x.graded(trial, 0.5, record=await blobs.put(x.tar(record, gz=True))),
        x.judged(trial, 0.5),
    ]
    return await x.exported(blobs, facts, trial)


async def test_steps_have_folders_and_results_of_their_own(blobs: MemoryBlobs) -> None:
    files = await steps(blobs)
    assert {
        "steps/build/agent/trajectory.json",
        "steps/build/agent/0.txt",
        "steps/build/verifier/reward.json",
        "steps/serve/agent/trajectory.json",
        "steps/serve/agent/1.txt",
        "steps/serve/artifacts/manifest.json",
    } <= set(files)
    assert not any(name.startswith(("agent/", "verifier/")) for name in files)
    result = json.loads(files["result.json"])
    assert (result["task_name"], result["verifier_environment_mode"]) == ("steps", None)
    build, serve = result["step_results"]
    assert build["verifier_result"] == {"rewards": {"a": 0.5, "b": 1.0}}
    assert serve["verifier_result"] is None
    assert serve["exception_info"]["exception_type"] == "VerifierTimeoutError"
    assert serve["verifier"] == {"started_at": "2026-11-30T12:00:02.000+00:00", "finished_at": None}
    assert build["verifier"] is None


async def test_what_is_lost_costs_its_own_files_and_is_told(blobs: MemoryBlobs) -> None:
    part = await x.part(blobs) | {"atif": "1" * 64}
    facts = [
        f.trial_requested(x.TRIAL),
        await x.tried(blobs, part, state="2" * 64),
        x.graded(record="3" * 64),
        x.judged(),
    ]
    files = await x.exported(blobs, facts)
    assert json.loads(files["verifier/reward.json"]) == {"reward": 1.0}
    told = json.loads(files["trialog.json"])["left_out"]
    assert [(one["file"][:6], one["reason"]) for one in told] == [
        ("blob 1", "is lost"),
        ("blob 3", "is lost"),
        ("blob 2", "is lost"),
    ]


def reference_run() -> ExportedRun:
    return ExportedRun(f.RUN, RunSpec(n_steps=1), {"agent:policy": "1" * 64})


async def reference(blobs: MemoryBlobs) -> dict[str, bytes]:
    turns = [{"doc": 3, "found": False}, {"doc": 5, "found": True}]
    kept = {"turns": turns, "answer": "ab", "files": ["answer.txt"], "state": []}
    blob = await blobs.put(canonical(kept))
    return await x.exported(blobs, f.judged_trial(x.TRIAL, blob=blob), of=reference_run())


async def test_a_trial_of_the_reference_world_is_a_trial_folder_too(blobs: MemoryBlobs) -> None:
    files = await reference(blobs)
    said = json.loads(files["agent/trajectory.json"])["steps"]
    assert [step["source"] for step in said] == ["user", "agent", "agent", "agent"]
    assert said[2]["observation"]["results"][0]["content"] == "the secret"
    result = json.loads(files["result.json"])
    assert result["verifier_result"] == {"rewards": {"reward": 2.0}}
    assert result["task_name"] == "w0"


@pytest.mark.slow
async def test_harbor_loads_what_is_exported(blobs: MemoryBlobs, tmp_path: Path) -> None:
    harbor.interpreter()
    facts = [f.trial_requested("s0-p0-n1"), ev.TrialCancelled("s0-p0-n1", 0)]
    trials = {
        x.TRIAL: await good(blobs),
        "s0-p1-n0": await steps(blobs),
        "s0-p0-n1": await x.exported(blobs, facts, "s0-p0-n1"),
    }
    folder = tmp_path / f.RUN
    tally = Tally()
    doc: dict[str, Any] = {
        "created_at": "2026-11-30T12:00:00+00:00",
        "ended_at": None,
        "counts": {"retried": {"generate": 1}},
    }
    for name, files in trials.items():
        x.unpacked(files, folder / name)
        tally.add("hello", json.loads(files["trialog.json"]))
    (folder / "config.json").write_text(json.dumps(job.config(x.run())))
    (folder / "result.json").write_text(json.dumps(job.result(x.run(), doc, tally)))
    x.unpacked(await reference(blobs), tmp_path / "reference" / x.TRIAL)
    found = harbor.load(tmp_path)
    assert found["reference"]["trials"][x.TRIAL]["reward_valid"] is True
    loaded = found[f.RUN]
    assert loaded["config"]["job_name"] == f.RUN
    stats = loaded["result"]["stats"]
    assert (stats["n_completed_trials"], stats["n_errored_trials"]) == (3, 1)
    assert loaded["result"]["n_total_trials"] == 3
    assert stats["evals"]["oracle__adhoc"]["metrics"] == [{"mean": 0.75}]
    assert {n: t["reward_valid"] for n, t in loaded["trials"].items()} == {
        x.TRIAL: True,
        "s0-p1-n0": False,  # harbor does not trust a trial one of whose steps was not graded
        "s0-p0-n1": False,
    }
    assert loaded["trials"][x.TRIAL]["verifier_result"]["rewards"] == {"reward": 1.0}
