"""A run of tasks through every real service, written to the disk by the command as a user runs it,
and loaded by harbor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support import harbor_jobs as harbor
from support.cluster import QUICK, Cluster, RunSeen

pytestmark = [pytest.mark.stack, pytest.mark.slow]

TRIALOG = str(Path(sys.executable).with_name("trialog"))
EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks"
CHOSEN = ("endless-search", "fix-program", "hanging-test", "hello-file")


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder of tasks: two that go well, an agent that takes too long, a test that hangs."""
    for name in CHOSEN:
        shutil.copytree(EXAMPLES / name, tmp_path / "tasks" / name)
    return tmp_path / "tasks"


def trialog(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"TRIALOG_URL": cluster.stack.api_url}
    done = subprocess.run([TRIALOG, *arguments], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_a_run_of_tasks_is_a_job_that_harbor_loads_and_rows_for_training(
    cluster: Cluster, tasks: Path, tmp_path: Path
) -> None:
    run = cluster.run(
        tasks={"path": str(tasks)},
        agent="oracle",
        learner="none",
        rubric="task",
        images={"debian:bookworm-slim": "host"},
        retries={"trial": 0},
    )
    assert run.wait()["state"] == "completed"
    _tasks_have_rewards(cluster, run)
    jobs = tmp_path / "jobs"
    trialog(cluster, "export", run.run_id, "-o", str(jobs / run.run_id))
    again = trialog(cluster, "export", run.run_id, "-o", str(jobs / run.run_id))
    assert "0 trials exported, 4 were there" in again.stderr
    _rows(cluster, run, tmp_path)
    _files(jobs / run.run_id)
    job = harbor.load(jobs)[run.run_id]  # skips what follows where there is no harbor
    found = {one["task_name"]: one for one in job["trials"].values()}
    assert sorted(found) == sorted(CHOSEN)
    assert {name: one["reward_valid"] for name, one in found.items()} == {
        "endless-search": True,
        "fix-program": True,
        "hanging-test": False,
        "hello-file": True,
    }
    errors = {name: one["exception_info"] for name, one in found.items()}
    assert errors["endless-search"]["exception_type"] == "AgentTimeoutError"
    assert errors["hanging-test"]["exception_type"] == "VerifierTimeoutError"
    assert (job["result"]["n_total_trials"], job["result"]["stats"]["n_errored_trials"]) == (4, 2)


def _files(job: Path) -> None:
    """Look at what lies in a job's folder."""
    results = {
        one["task_name"]: path.parent
        for path in job.glob("*/result.json")
        if (one := json.loads(path.read_text()))
    }
    assert sorted(results) == sorted(CHOSEN)
    hello, hanging = results["hello-file"], results["hanging-test"]
    assert json.loads((hello / "agent" / "trajectory.json").read_text())["steps"]
    assert (hello / "verifier" / "reward.txt").read_text().strip()
    assert json.loads((hanging / "attempts" / "0" / "attempt.json").read_text())["error"]


def _tasks_have_rewards(cluster: Cluster, run: RunSeen) -> None:
    found = json.loads(trialog(cluster, "tasks", "list", run.run_id, "-o", "json").stdout)
    means = {one["task"]: one["mean_reward"] for one in found["tasks"]}
    assert means == {
        "endless-search": 1.0,
        "fix-program": 1.0,
        "hanging-test": None,  # unscored is no zero (I11)
        "hello-file": 1.0,
    }
    totals = found["totals"]
    assert (totals["mean_reward"], totals["tasks_scored"], totals["unscored"]) == (1.0, 3, 1)
    assert totals["errors"] == {"AgentTimeoutError": 1, "VerifierTimeoutError": 1}


def _rows(cluster: Cluster, run: RunSeen, folder: Path) -> None:
    done = trialog(cluster, "export", run.run_id, "--format", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(row["task"] for row in rows) == ["endless-search", "fix-program", "hello-file"]
    assert all(row["reward"] == 1.0 and row["instruction"] for row in rows)
    assert "1 trials without a verdict left out" in done.stderr
    assert "3 rows have no token ids" in done.stderr  # the oracle asks no model
    path = folder / "rows.parquet"
    trialog(cluster, "export", run.run_id, "--format", "parquet", "--all", "-o", str(path))
    table = pq.read_table(path)
    assert table.num_rows == 4
    assert table.column("reward").null_count == 1


def test_the_reference_run_is_a_job_too(cluster: Cluster, tmp_path: Path) -> None:
    run = cluster.run(n_steps=2, **QUICK)
    assert run.wait()["state"] == "completed"
    trialog(cluster, "export", run.run_id, "-o", str(tmp_path / "jobs" / run.run_id))
    fork = run.fork({"n_steps": 3})
    assert fork.wait()["state"] == "completed"
    trialog(cluster, "export", fork.run_id, "--step", "0", "-o", str(tmp_path / "fork"))
    assert len(list((tmp_path / "fork").glob("s0-*/result.json"))) == 6
    job = harbor.load(tmp_path / "jobs")[run.run_id]
    rewards = {name: one["verifier_result"]["rewards"] for name, one in job["trials"].items()}
    known = {name: {"reward": one["reward"]} for name, one in run.trials().items()}
    assert rewards == known and len(known) == 12
