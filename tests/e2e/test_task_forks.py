"""Forks of runs of tasks, on every real service: only what a change touches is executed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.cluster import Cluster, RunSeen

EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks"
CHOSEN = ("csv-totals", "fix-program", "hello-file")
KINDS = ("build_world", "generate", "verify", "judge_call", "judge", "train_step")


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder of three tasks of the test's own."""
    for name in CHOSEN:
        shutil.copytree(EXAMPLES / name, tmp_path / "tasks" / name)
    return tmp_path / "tasks"


@pytest.fixture
def parent(cluster: Cluster, tasks: Path) -> RunSeen:
    """A run of the three in two batches, completed."""
    run = cluster.run(
        tasks={"path": str(tasks)},
        agent="oracle",
        images={"debian:bookworm-slim": "host"},
        prompts_per_step=2,
    )
    assert run.wait()["state"] == "completed"
    assert executed(run) == {"build_world": 3, "generate": 3, "verify": 3, "judge": 3}
    assert rewards(run) == {"s0-p0-n0": 1.0, "s0-p1-n0": 1.0, "s1-p0-n0": 1.0}
    return run


def executed(run: RunSeen) -> dict[str, int]:
    """Return what a run did itself, by kind."""
    counts = run.get()["counts"]["executed"]
    assert set(counts) == set(KINDS)
    return {kind: n for kind, n in counts.items() if n}


def rewards(run: RunSeen) -> dict[str, float | None]:
    return {trial: seen["reward"] for trial, seen in sorted(run.trials().items())}


def ended_fork(run: RunSeen, settings: dict[str, Any]) -> RunSeen:
    fork = run.fork(settings)
    assert fork.wait()["state"] == "completed"
    return fork


def grade_zero(task: Path) -> None:
    """Let a task's tests say 0, whatever the agent left."""
    (task / "tests" / "test.sh").write_text("#!/bin/sh\necho 0 > /logs/verifier/reward.txt\n")


def test_an_unchanged_fork_executes_nothing(parent: RunSeen) -> None:
    fork = ended_fork(parent, {})
    assert executed(fork) == {}
    assert rewards(fork) == rewards(parent)


def test_other_tests_grade_what_the_agent_left(
    cluster: Cluster, parent: RunSeen, tasks: Path
) -> None:
    """The agent does not run again, and the other tasks are not graded again."""
    grade_zero(tasks / "hello-file")
    changed = {"tasks": {"path": str(tasks)}}
    path = f"/runs/{parent.run_id}/fork"
    planned = cluster.http.post(path, params={"dry_run": True}, json=changed).json()
    verify = planned["steps"][-1]["actions"]["verify"]
    assert (verify["executed"], verify["reasons"]) == (1, ["tests changed: hello-file"])
    assert planned["totals"]["generate"]["executed"] == 0
    fork = ended_fork(parent, changed)
    assert executed(fork) == {"verify": 1, "judge": 1}
    assert rewards(fork) == {"s0-p0-n0": 1.0, "s0-p1-n0": 1.0, "s1-p0-n0": 0.0}
    trial = fork.trials()["s1-p0-n0"]
    assert trial["reward"] == 0.0
    (verified,) = [
        event["data"]
        for event in fork.events("TrialVerified")
        if event["data"].get("provenance") is None
    ]
    assert verified["mode"] == "restored", "in a fresh sandbox, from the state that was kept"


def test_a_task_more_is_the_only_one_that_runs(parent: RunSeen, tasks: Path) -> None:
    shutil.copytree(EXAMPLES / "log-report", tasks / "a-new-one")  # first by its name
    fork = ended_fork(parent, {"tasks": {"path": str(tasks)}})
    assert executed(fork) == {"build_world": 1, "generate": 1, "verify": 1, "judge": 1}
    assert rewards(fork) == rewards(parent) | {"s1-p1-n0": 1.0}


def test_another_agent_works_on_the_same_images(parent: RunSeen) -> None:
    fork = ended_fork(parent, {"agent": "nop"})
    assert executed(fork) == {"generate": 3, "verify": 3, "judge": 3}
    assert set(rewards(fork).values()) == {0.0}
    assert executed(ended_fork(fork, {"agent": "oracle"})) == {}, "the grandparent has it"
