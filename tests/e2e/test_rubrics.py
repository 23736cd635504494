"""Rubrics of examples/ kept, named by runs and judged by, on every real service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster import QUICK, Cluster, RunSeen

TRIALOG = str(Path(sys.executable).with_name("trialog"))
FOLDER = Path(__file__).parents[2] / "examples" / "rubrics"
EXAMPLES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.iterdir())}
SMALL = {"n_steps": 1, "prompts_per_step": 3, "n_samples": 1}


def trialog(cluster: Cluster, *arguments: str, text: str = "") -> str:
    done = subprocess.run(
        [TRIALOG, *arguments, "--url", cluster.stack.api_url],
        input=text,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def put(cluster: Cluster, source: str, text: str = "") -> dict[str, Any]:
    return json.loads(trialog(cluster, "rubrics", "put", source, "-o", "json", text=text))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_kept_once_and_judged_by(cluster: Cluster, name: str) -> None:
    path = str(FOLDER / f"{name}.yaml")
    first, again = put(cluster, path), put(cluster, path)
    assert (again["added"], again["version"]) == (False, first["version"])
    before = cluster.judge_calls().total()
    settings = [f"--set={key}={value}" for key, value in (QUICK | SMALL).items()]
    said = trialog(
        cluster, "run", "-", f"--set=rubric={name}", *settings, "--watch", text="labels: {}"
    )
    run = RunSeen(cluster.http, said.split()[0])
    rubric = run.get()["spec"]["rubric"]
    asked = {"holistic": 1, "check": 0}.get(
        rubric["scoring"], sum(one["check"] is None for one in rubric["criteria"])
    )
    trials = run.trials().values()
    assert cluster.judge_calls().total() - before == asked * len(trials)
    for trial in trials:
        assert trial["state"] == "judged"
        for one in rubric["criteria"]:
            low, high = one["scale"]
            assert low <= trial["scores"][one["name"]] <= high
        if rubric["scoring"] != "holistic":
            shares = [
                (trial["scores"][one["name"]] - one["scale"][0])
                / (one["scale"][1] - one["scale"][0])
                for one in rubric["criteria"]
            ]
            weights = [one["weight"] for one in rubric["criteria"]]
            score = sum(w * share for w, share in zip(weights, shares, strict=True))
            assert trial["judge_score"] == pytest.approx(score)
            assert trial["reward"] == round(trial["verified"] + trial["judge_score"], 3)


def test_a_later_version_changes_no_run_and_is_compared(cluster: Cluster) -> None:
    rubric = {"name": "mine", "criteria": [{"name": "efficiency", "weight": 1.0}]}
    put(cluster, "-", json.dumps(rubric))
    run = cluster.run(**QUICK, **SMALL, rubric="mine")
    kept = run.get()["spec"]["rubric"]
    rubric["criteria"] = [{"name": "efficiency", "weight": 3.0}, {"name": "tidiness"}]
    assert put(cluster, "-", json.dumps(rubric))["version"] == 2
    assert run.wait()["spec"]["rubric"] == kept
    old = run.trials()
    exact, newer = (cluster.run(**QUICK, **SMALL, rubric=name) for name in ("mine@1", "mine"))
    assert exact.wait()["spec"]["rubric"] == kept
    newer.wait()
    assert {t: one["reward"] for t, one in exact.trials().items()} == {
        t: one["reward"] for t, one in old.items()
    }
    for trial_id, trial in newer.trials().items():
        scores = old[trial_id]["scores"] | {"tidiness": trial["scores"]["tidiness"]}
        assert trial["scores"] == scores
        assert trial["judge_score"] == 3 * scores["efficiency"] + scores["tidiness"]
    lines = trialog(cluster, "rubrics", "diff", "mine@1", "mine").strip().splitlines()
    assert [line.split() for line in lines[-2:]] == [
        ["efficiency", "weight", "1", "3"],
        ["tidiness", "added", "-", "by", "its", "name"],
    ]


def test_a_fork_under_a_later_version_makes_the_calls_that_changed(cluster: Cluster) -> None:
    rubric = EXAMPLES["careful"] | {"name": "forked"}
    put(cluster, "-", json.dumps(rubric))
    run = cluster.run(**QUICK, **SMALL, rubric="forked")
    run.wait()
    right, search, restraint, honesty = rubric["criteria"]
    versions = {
        # Only weights; a prompt; a scale; one more, and one less.
        2: ([right, search | {"weight": 0.1}, restraint, honesty | {"weight": 9}], set[str]()),
        3: ([right, search | {"prompt": "Straight?"}, restraint, honesty], {"search"}),
        4: ([right, search, restraint | {"scale": [0, 1]}, honesty], {"restraint"}),
        5: ([right, search, restraint, {"name": "tone", "prompt": "Calm?"}], {"tone"}),
    }
    for version, (criteria, asked) in versions.items():
        assert put(cluster, "-", json.dumps(rubric | {"criteria": criteria}))["version"] == version
        before = cluster.judge_calls().total()
        fork = run.fork(rubric="forked")
        assert fork.wait()["state"] == "completed"
        started = fork.events("JudgeCallStarted")
        assert {event["data"]["criterion"] for event in started} == asked, version
        assert cluster.judge_calls().total() - before == len(asked) * len(fork.trials())
