"""What a worker really leaves of trials, exported and loaded by harbor: worker, blobs and exports
together, in real sandboxes."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from support import exports as x
from support import facts as f
from support import harbor_jobs as harbor
from support.task_worker import TRIAL, TaskWorker, a_task
from trialog.driver.export.facts import gathered
from trialog.driver.export.folder import Exported, write_folder
from trialog.driver.export.kept import decoded, kept_of
from trialog.driver.export.rows import Tried, row
from trialog.driver.export.run import ExportedRun
from trialog.driver.views import Doc, evolve_trial
from trialog.proto import events as ev
from trialog.proto.runspec import load
from trialog.proto.tasks.parse import parse
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.spine.runs import tasks_of

pytestmark = pytest.mark.stack

SAID = "echo said && echo noted > /logs/agent/notes.txt && mkdir -p /logs/artifacts && "
GOOD = (
    SAID + "echo kept > /logs/artifacts/kept.txt && echo 1 > answer.txt && ln -s /etc/passwd link"
)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncGenerator[TaskWorker]:
    provider = BubblewrapProvider(tmp_path / "provider", orphan_s=0)
    yield TaskWorker(provider, tmp_path)
    await provider.close()


async def played(place: TaskWorker, task: dict[str, str], **settings: Any) -> Exported:
    """Play one trial of a task and judge it as rubric `task` does."""
    run_id = await place.ask(task, **settings)
    ended = await place.play(run_id)
    if ended.failure is not None:
        error = ended.failure.error
        end: ev.Fact = ev.TrialSkipped(TRIAL, 0, "retries_exhausted", error=error)
    else:
        assert ended.verified is not None and ended.verified.reward is not None
        end = f.judged(TRIAL, reward=ended.verified.reward, scores={})
    await place.append(run_id, end)
    events = place.log.store.events_of(run_id)
    request, doc = events[0].fact(), None
    assert isinstance(request, ev.RunRequested)
    about = [event for event in events if f'"{TRIAL}"' in event.data]
    for event in about:
        doc = evolve_trial(doc, event, event.fact())
    spec = load(request.spec)
    run = ExportedRun(run_id, spec, request.code, await tasks_of(place.blobs, spec))
    config, _ = parse(task["task.toml"].encode())
    return Exported(run, _known(doc), gathered(TRIAL, about), config)


async def exported(
    place: TaskWorker, task: dict[str, str], folder: Path, **settings: Any
) -> dict[str, Any]:
    """Play one trial, export it into a folder of its run's name, and return its result."""
    trial = await played(place, task, **settings)
    await _write(place, trial, folder / trial.run.run_id)
    return json.loads((folder / trial.run.run_id / TRIAL / "result.json").read_text())


def _known(doc: Doc | None) -> Doc:
    assert doc is not None
    return doc


async def _write(place: TaskWorker, trial: Exported, folder: Path) -> None:
    out = io.BytesIO()
    await write_folder(trial, place.blobs, out)
    x.unpacked(x.members(out), folder / TRIAL)


async def test_a_trial_that_was_played_is_what_harbor_loads(
    place: TaskWorker, tmp_path: Path
) -> None:
    jobs = tmp_path / "jobs"
    declared = 'artifacts = ["/app/answer.txt", "/app/link"]\n'
    test = "cat answer.txt > /logs/verifier/reward.txt && echo tested"
    result = await exported(place, a_task(GOOD, test, toml=declared), jobs)
    assert result["verifier_result"] == {"rewards": {"reward": 1.0}}
    assert result["agent_execution"]["started_at"] < result["agent_execution"]["finished_at"]
    (folder,) = jobs.iterdir()
    trial = folder / TRIAL
    assert (trial / "agent" / "notes.txt").read_text() == "noted\n"
    assert (trial / "artifacts" / "app" / "answer.txt").read_text() == "1\n"
    assert (trial / "artifacts" / "logs" / "artifacts" / "kept.txt").read_text() == "kept\n"
    assert (trial / "verifier" / "reward.txt").read_text() == "1\n"
    assert "tested" in (trial / "verifier" / "test-stdout.txt").read_text()
    assert not (trial / "artifacts" / "app" / "link").exists()
    left = json.loads((trial / "trialog.json").read_text())["left_out"]
    assert {"file": "app/link", "reason": "is no regular file"} in left
    said = json.loads((trial / "agent" / "trajectory.json").read_text())
    assert said["schema_version"] == "ATIF-v1.8"
    assert said["steps"][0]["message"] == "Write 1 into answer.txt.\n"
    loaded = harbor.load(jobs)[folder.name]["trials"][TRIAL]
    assert loaded["reward_valid"] is True


async def test_a_task_with_steps_and_one_without_a_reward(
    place: TaskWorker, tmp_path: Path
) -> None:
    jobs = tmp_path / "jobs"
    toml = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
    steps = a_task(test="echo 0.5 > /logs/verifier/reward.txt", toml=toml)
    del steps["instruction.md"]
    steps |= {f"steps/{name}/instruction.md": "Go on.\n" for name in ("one", "two")}
    result = await exported(place, steps, jobs)
    assert [one["step_name"] for one in result["step_results"]] == ["one", "two"]
    assert [one["verifier_result"] for one in result["step_results"]] == [
        {"rewards": {"reward": 0.5}}
    ] * 2
    unscored = await exported(place, a_task(test="true"), jobs)
    assert unscored["verifier_result"] is None
    assert unscored["exception_info"]["exception_type"] == "RewardFileNotFoundError"
    loaded = [one for job in harbor.load(jobs).values() for one in job["trials"].values()]
    assert sorted(one["reward_valid"] for one in loaded) == [False, True]


async def test_token_ids_that_an_agent_told_are_a_row_and_harbors_rollout(
    place: TaskWorker, tmp_path: Path
) -> None:
    agent = {"agent": "import:support.token_agent:TokenAgent", "versions": {"agent": "1"}}
    trial = await played(place, a_task(), **agent)
    kept = kept_of(await place.blobs.get(trial.doc["trajectory"]))
    documents = [decoded(await place.blobs.get(part.atif)) or {} for part in kept.parts]
    found = row(trial.run, Tried(trial.doc, kept, documents, ["Write it."]))
    assert found["prompt_token_ids"] == [1, 2, 3]
    assert found["completion_token_ids"] == [4, 5, 6, 7, 8]
    assert found["loss_mask"] == [1, 1, 0, 0, 1]
    assert found["logprobs"] == [-0.5, -0.25, None, None, -0.125]
    assert (found["reward"], found["reward_valid"], found["segments"]) == (1.0, True, None)
    assert [turn["source"] for turn in found["turns"]] == ["user", "agent", "agent"]
    await _write(place, trial, tmp_path / "jobs" / trial.run.run_id)
    (job,) = harbor.load(tmp_path / "jobs").values()
    told = job["trials"][TRIAL]["agent_result"]
    assert (told["n_input_tokens"], told["n_output_tokens"], told["cost_usd"]) == (10, 3, 0.75)
    (rollout,) = told["rollout_details"]
    assert rollout["completion_token_ids"] == [[4, 5], [8]]
    assert rollout["logprobs"] == [[-0.5, -0.25], [-0.125]]
