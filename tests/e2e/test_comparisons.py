"""The golden run and its golden fork, compared by the API and by the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.cluster import QUICK, Cluster, RunSeen
from support.verdicts import FAULTS
from trialog.driver.api.compare_schemas import Comparison, Lineage

TRIALOG = str(Path(sys.executable).with_name("trialog"))
Runs = tuple[RunSeen, RunSeen]


@pytest.fixture(scope="module")
def runs(cluster: Cluster) -> Generator[Runs]:
    """The golden run and its fork with another rubric, both completed."""
    injected = cluster.run(**QUICK, faults=FAULTS)
    assert injected.wait()["state"] == "completed"
    fork = injected.fork(rubric="v2-efficiency")
    assert fork.wait()["state"] == "completed"
    yield injected, fork


def trialog(cluster: Cluster, *arguments: str) -> str:
    environment = os.environ | {"TRIALOG_URL": cluster.stack.api_url}
    done = subprocess.run(
        [TRIALOG, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rewards(name: str) -> dict[str, float]:
    """Return the golden rewards of a run, by trial."""
    steps = golden.RUNS[name]["steps"]
    return {each["trial_id"]: each["reward"] for step in steps for each in step["rewards"]}


def test_the_golden_fork_is_compared_with_its_parent(runs: Runs) -> None:
    injected, fork = runs
    found = injected.get(f"/compare/{fork.run_id}")
    Comparison.model_validate(found)
    before, after = rewards("injected"), rewards("fork_v2")
    assert {t["trial_id"]: (t["a"]["reward"], t["b"]["reward"]) for t in found["trials"]} == {
        trial: (before[trial], after[trial]) for trial in before
    }
    for trial in found["trials"]:
        expected = round(after[trial["trial_id"]] - before[trial["trial_id"]], 3)
        assert trial["delta"]["reward"] == expected
    assert [(step["mean_reward"]["a"], step["mean_reward"]["b"]) for step in found["steps"]] == [
        (1.615, 2.412),
        (2.354, 3.362),
        (2.358, 3.364),
    ]
    for step in found["steps"]:
        deltas = [t["delta"]["reward"] for t in found["trials"] if t["step"] == step["step"]]
        assert (step["n"], step["delta"]) == (6, round(sum(deltas) / 6, 6))
    first = [trial for trial in found["trials"] if trial["step"] == 0]
    assert all(trial["same_trajectory"] for trial in first)
    for trial in first:
        sources = trial["b"]["provenance"]
        assert (sources["generate"]["state"], sources["generate"]["run_id"]) == (
            "recovered",
            injected.run_id,
        )
        assert sources["judge"]["state"] == "executed"
        assert trial["b"]["judge_calls"] == {"executed": 1, "recovered": 0}
    later = [trial for trial in found["trials"] if trial["step"] > 0]
    assert {t["b"]["provenance"]["generate"]["state"] for t in later} == {"executed"}
    assert [t["trial_id"] for t in later if not t["same_trajectory"]] == ["s2-p0-n1"]


def test_an_unchanged_fork_is_compared_as_recovered(runs: Runs) -> None:
    injected, _ = runs
    again = injected.fork()
    again.wait()
    found = injected.get(f"/compare/{again.run_id}")
    assert (found["totals"]["n"], found["totals"]["delta"]) == (18, 0.0)
    assert {step["b"]["provenance"]["state"] for step in found["steps"]} == {"recovered"}
    for trial in found["trials"]:
        states = {(each["state"], each["run_id"]) for each in trial["b"]["provenance"].values()}
        assert states == {("recovered", injected.run_id)}
        assert trial["b"]["provenance"]["judge"] == trial["a"]["provenance"]["judge"] | {
            "state": "recovered"
        }


def test_a_rescoring_is_compared_on_identical_trajectories(cluster: Cluster, runs: Runs) -> None:
    injected, _ = runs
    scored = injected.fork(rubric="v2-efficiency", mode="rescore")
    assert scored.wait()["state"] == "completed"
    found = injected.get(f"/compare/{scored.run_id}")
    assert found["totals"]["n"] == 18
    assert {trial["same_trajectory"] for trial in found["trials"]} == {True}
    for trial in found["trials"]:
        states = [source["state"] for source in trial["b"]["provenance"].values()]
        assert states == ["recovered", "recovered", "executed"]
    assert [step["b"]["trained"] for step in found["steps"]] == [False] * 3
    shown = trialog(cluster, "compare", injected.run_id, scored.run_id)
    assert shown.count("not trained") == 3


def test_the_lineage_names_what_the_fork_changed(runs: Runs) -> None:
    injected, fork = runs
    second = fork.fork({"lr": 1.0, "from_step": 2})
    second.wait()
    found = second.get("/lineage")
    Lineage.model_validate(found)
    assert [(one["run_id"], one["rubric"]) for one in found["ancestors"]] == [
        (fork.run_id, "v2-efficiency"),
        (injected.run_id, "v1"),
    ]
    changes = [[change["field"] for change in one["changes"]] for one in found["ancestors"]]
    assert changes == [["lr"], ["rubric"]]
    lines: dict[str, Any] = {one["run_id"]: one for one in found["runs"]}
    assert (lines[second.run_id]["parent"], lines[second.run_id]["from_step"]) == (fork.run_id, 2)
    assert lines[fork.run_id]["executed"]["judge_call"] == 18
    assert lines[fork.run_id]["recovered"]["generate"] == 6
    assert injected.get("/lineage")["ancestors"] == []


def test_the_commands_show_the_same(cluster: Cluster, runs: Runs) -> None:
    injected, fork = runs
    text = trialog(cluster, "compare", injected.run_id, fork.run_id, "-o", "json")
    assert json.loads(text) == injected.get(f"/compare/{fork.run_id}", limit=50)
    shown = trialog(cluster, "compare", injected.run_id, fork.run_id, "--step", "0")
    [row] = [line.split() for line in shown.splitlines() if line.split()[:1] == ["0"]]
    assert row == ["0", "6", "1.615", "2.412", "+0.796", "executed", "executed"]
    assert shown.count("gvJ") == 6
    drawn = trialog(cluster, "lineage", fork.run_id)
    assert "rubric: v1 -> v2-efficiency" in drawn and f"{fork.run_id} *" in drawn


def test_a_fork_is_planned_and_made_by_the_command(cluster: Cluster, runs: Runs) -> None:
    injected, fork = runs
    run, rubric = injected.run_id, ("--rubric", "v2-efficiency")
    before = len(injected.get("/lineage")["runs"])
    plan = json.loads(trialog(cluster, "fork", run, *rubric, "--dry-run", "-o", "json"))
    assert plan["totals"]["generate"] == {"recovered": 6, "executed": 0, "unknown": 12}
    assert (plan["totals"]["judge"]["executed"], plan["totals"]["build_world"]["recovered"]) == (
        6,
        3,
    )
    shown = trialog(cluster, "fork", run, *rubric, "--dry-run")
    assert "rubric digest changed" in shown
    assert len(injected.get("/lineage")["runs"]) == before
    out = trialog(cluster, "fork", run, "--label", "team=blue", "--watch", "-o", "json")
    made = json.loads(out.splitlines()[-1])
    assert made["state"] == "completed"
    forked = RunSeen(cluster.http, made["run_id"]).get()
    assert (forked["parent"], forked["labels"]) == (run, {"team": "blue"})
    assert set(forked["counts"]["executed"].values()) == {0}
    assert fork.get()["root"] == run
