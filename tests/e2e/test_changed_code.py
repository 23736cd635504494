"""Forks when code changed: what it made is made again, and all else stands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import trialog.judge
import trialog.sandbox
import trialog.trainer
from support.cluster import QUICK, Cluster, RunSeen
from trialog.judge import code as judge_code
from trialog.proto import runspec
from trialog.proto.keys import Keys
from trialog.sandbox import code as sandbox_code
from trialog.trainer import code as trainer_code

SMALL: dict[str, Any] = {**QUICK, "n_steps": 2, "prompts_per_step": 2}
TRIALS = 8
CHECKED = {
    "name": "right",
    "scoring": "check",
    "criteria": [{"name": "right", "check": "correct"}],
}
OWN = sandbox_code.versions() | judge_code.versions() | trainer_code.versions()
NOTHING = dict.fromkeys(
    ["build_world", "generate", "verify", "judge_call", "judge", "train_step"], 0
)
COUNTS = {"sandbox": "sandboxes", "judge": "judges", "trainer": "trainers"}
PACKAGES = {"sandbox": trialog.sandbox, "judge": trialog.judge, "trainer": trialog.trainer}


class Patches:
    """Services that run a copy of their package in which a text is another."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._patched: set[str] = set()

    def __call__(self, kind: str, module: str, old: str, new: str) -> None:
        """Restart a service: one process, with ``old`` replaced in a module of it."""
        copy = self._folder / kind / "trialog" / kind
        shutil.copytree(Path(str(PACKAGES[kind].__file__)).parent, copy)
        text = (copy / module).read_text()
        assert old in text
        (copy / module).write_text(text.replace(old, new))
        self._patched.add(kind)
        self._replace(kind, {"PYTHONPATH": str(self._folder / kind)}, 1)

    def undo(self) -> None:
        """Restart what was patched as it was before."""
        while self._patched:
            kind = self._patched.pop()
            self._replace(kind, {}, getattr(self._cluster.stack.options, COUNTS[kind]))

    def _replace(self, kind: str, environment: dict[str, str], count: int) -> None:
        self._cluster.scale(kind, 0)
        environments: Any = self._cluster.stack.options.service_env  # read at each start
        environments[kind] = environment
        self._cluster.scale(kind, count)


@pytest.fixture
def patch(cluster: Cluster, tmp_path: Path) -> Generator[Patches]:
    patches = Patches(cluster, tmp_path)
    yield patches
    patches.undo()


def running(cluster: Cluster, kind: str) -> list[str]:
    processes = cluster.stack.processes.items()
    return [name for name, seen in processes if name.startswith(f"{kind}-") and seen.pid]


def completed(run: RunSeen) -> RunSeen:
    assert run.wait()["state"] == "completed"
    return run


def executed(run: RunSeen) -> dict[str, int]:
    """Return the actions of a completed run that it executed itself, by kind."""
    counts = completed(run).get()["counts"]["executed"]
    return {kind: n for kind, n in counts.items() if n}


def plan(cluster: Cluster, run: RunSeen, **settings: Any) -> Any:
    answer = cluster.http.post(f"/runs/{run.run_id}/fork", params={"dry_run": True}, json=settings)
    answer.raise_for_status()
    return answer.json()


def reasons(plan: Any) -> dict[str, list[str]]:
    """Return why the first step's actions are executed, by kind."""
    actions = plan["steps"][0]["actions"]
    return {kind: count["reasons"] for kind, count in actions.items() if count["executed"]}


@pytest.fixture(scope="module")
def parent(cluster: Cluster) -> RunSeen:
    return completed(cluster.run(**SMALL))


def test_a_run_pins_what_the_services_told_of(parent: RunSeen) -> None:
    pinned = parent.events("RunRequested")[0]["data"]["code"]
    names = ("agent:policy", "verifier:reference", "learner:bandit")
    assert pinned == {name: OWN[name] for name in names}


def test_a_declared_version_that_changes_makes_everything_anew(
    cluster: Cluster, parent: RunSeen
) -> None:
    changed = {"versions": {"agent": "2"}}
    assert reasons(plan(cluster, parent, **changed))["generate"] == ["agent code changed"]
    before = cluster.judge_calls()
    fork = parent.fork(changed)
    assert executed(fork)["generate"] == TRIALS
    assert fork.prior(2) == parent.prior(2), "declared only: it is the same agent"
    assert cluster.judge_calls() == before, "the trajectories came out the same"
    assert executed(fork.fork()) == {}
    assert executed(fork.fork({"versions": {"agent": None}})) == {}, "the parent's own version"


def test_an_agent_whose_source_changed_makes_everything_anew(
    cluster: Cluster, parent: RunSeen, patch: Patches
) -> None:
    patch("sandbox", "agents/policy.py", "SCRATCH_RATE = 0.3", "SCRATCH_RATE = 1.0")
    planned = plan(cluster, parent)
    assert reasons(planned)["generate"] == ["agent code changed"]
    assert planned["totals"]["build_world"] == {"recovered": 2, "executed": 0, "unknown": 0}
    fork = parent.fork()
    assert executed(fork)["generate"] == TRIALS
    assert all("scratch.tmp" in trial["files_written"] for trial in fork.trials().values())
    assert executed(fork.fork()) == {}, "the changed code is the same code now"


def test_code_that_is_put_back_finds_what_it_made_before(parent: RunSeen) -> None:
    assert executed(parent.fork()) == {}


def test_a_comment_in_a_check_is_a_change_and_costs_no_call(
    cluster: Cluster, patch: Patches
) -> None:
    run = completed(cluster.run(**SMALL, rubric=CHECKED))
    assert executed(run.fork()) == {}
    patch("judge", "checks/correct.py", "    return", "    # as the verifier says\n    return")
    assert reasons(plan(cluster, run))["judge"] == ["check code changed: right"]
    assert executed(run.fork()) == {"judge": TRIALS}


def test_a_worker_of_other_code_than_was_pinned_says_what_it_executed(
    cluster: Cluster, patch: Patches
) -> None:
    """As when a sandbox is replaced while runs go on."""
    cluster.scale("sandbox", 0)
    run = cluster.run(**SMALL)
    run.wait_for("WorldRequested")
    patch("sandbox", "agents/policy.py", "SCRATCH_RATE = 0.3", "SCRATCH_RATE = 1.0")
    completed(run)
    asked = {event["data"]["trial_id"]: event["data"] for event in run.events("TrialRequested")}
    for event in run.events("TrajectoryRecorded"):
        data = event["data"]
        assert data["action_key"] != asked[data["trial_id"]]["action_key"]
    (name,) = running(cluster, "sandbox")
    lines = [json.loads(line) for line in cluster.stack.log(name).read_text().splitlines()]
    said = [line for line in lines if "other code" in line["event"]]
    assert [line["run_id"] for line in said] == [run.run_id]
    assert said[0]["pinned"] == {"agent:policy": OWN["agent:policy"]}
    assert executed(run.fork()) == {}, "a fork counts on what was executed"
    patch.undo()
    fork = completed(run.fork())
    assert executed(fork)["generate"] == TRIALS, "what the run pinned is not what it has"
    assert not all("scratch.tmp" in trial["files_written"] for trial in fork.trials().values())


def test_a_step_says_which_learner_its_actor_ran(cluster: Cluster, patch: Patches) -> None:
    """The actor lives in the cluster, which has other code here than its host."""
    patch("trainer", "learners/bandit.py", "self._lr * item.reward", "2 * self._lr * item.reward")
    run = completed(cluster.run(**SMALL))
    (asked,) = run.events("RunRequested")
    told = asked["data"]["code"]["learner:bandit"]
    assert told != OWN["learner:bandit"], "what the host told of"
    keys = Keys(runspec.load(asked["data"]["spec"]), OWN)
    for event in run.events("StepApplied"):
        step = event["data"]
        judged = [e["data"] for e in run.events("Judged") if e["data"]["step"] == step["step"]]
        digests = [each["digest"] for each in sorted(judged, key=lambda each: each["trial_id"])]
        assert step["action_key"] == keys.step(step["step"], step["prior_digest"], digests)
    fork = completed(run.fork())
    assert fork.events("RunRequested")[0]["data"]["code"]["learner:bandit"] == OWN["learner:bandit"]
    assert executed(fork) == {}
