"""Every example task through all services, as a user runs them: each ends as it says it does."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import dockerd
from support.cluster import Cluster, RunSeen
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider

pytestmark = [pytest.mark.stack, pytest.mark.slow]

TRIALOG = str(Path(sys.executable).with_name("trialog"))
EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = {
    path.parent.name: json.loads(path.read_text())
    for path in sorted(EXAMPLES.glob("tasks/*/expected.json"))
}
SETTINGS: dict[str, list[str]] = {
    "bubblewrap": [],
    "docker": ["--set", "provider=docker", "--set", "images={}"],
}
PROVIDERS = ["bubblewrap", pytest.param("docker", marks=dockerd.MARKS)]


def run_file(cluster: Cluster, agent: str, provider: str, tasks: Path) -> RunSeen:
    """Run examples/harbor.yaml with an agent until it has ended, on a folder of its tasks."""
    command = [TRIALOG, "run", str(EXAMPLES / "harbor.yaml"), "-o", "json"]
    command += ["--set", f"agent={agent}", *SETTINGS[provider]]
    if tasks != EXAMPLES / "tasks":
        command += ["--set", f"tasks.path={tasks}"]
    env = os.environ | {"TRIALOG_URL": cluster.stack.api_url}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    run = RunSeen(cluster.http, json.loads(done.stdout)["run_id"])
    assert run.wait(timeout_s=240)["state"] == "completed"
    return run


def outcomes(run: RunSeen) -> dict[str, dict[str, Any]]:
    """Return how each task's trial ended, in the terms of expected.json."""
    return {
        trial["task"]: {
            "reward": trial["reward"],
            "error": trial["error"],
            "mode": trial["mode"],
        }
        for trial in run.trials().values()
    }


async def one_id_only(folder: Path) -> bool:
    """Tell whether sandboxes have no user but root here: an ordinary user's without subuids."""
    provider = BubblewrapProvider(folder)
    notes = (await provider.probe()).notes
    await provider.close()
    return any("one id only" in note for note in notes)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("agent", ["oracle", "nop"])
def test_they_end_as_they_say(cluster: Cluster, agent: str, provider: str, tmp_path: Path) -> None:
    tasks = EXAMPLES / "tasks"
    stated = {name: one[agent] for name, one in EXPECTED.items()}
    if provider == "bubblewrap" and asyncio.run(one_id_only(tmp_path / "provider")):
        # Its image has files of a user who is not root, and cannot be built here.
        tasks = Path(shutil.copytree(tasks, tmp_path / "tasks"))
        shutil.rmtree(tasks / "file-invoices")
        del stated["file-invoices"]
    run = run_file(cluster, agent, provider, tasks)
    assert outcomes(run) == stated
    graded = [one["reward"] for one in stated.values()]
    scored = [reward for reward in graded if reward is not None]
    # The mean is of those that have a verdict; those without are counted beside it.
    (step,) = run.get("/steps")["steps"]
    assert (step["n_judged"], step["n_skipped"]) == (len(scored), len(graded) - len(scored))
    assert step["mean_reward"] == pytest.approx(sum(scored) / len(scored))
    assert step["trained"] is False


def test_there_are_enough_that_tell_a_solution_from_nothing() -> None:
    rewards = [(one["oracle"]["reward"], one["nop"]["reward"]) for one in EXPECTED.values()]
    assert len(rewards) >= 14
    assert rewards.count((1.0, 0.0)) >= 9


def test_the_readme_has_them_all() -> None:
    said = (EXAMPLES / "tasks" / "README.md").read_text()
    assert [name for name in EXPECTED if f"`{name}`" not in said] == []
