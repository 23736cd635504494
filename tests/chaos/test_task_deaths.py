"""A worker is killed in each phase of a task's trial: the same rewards, no finished work repeated.

Each phase is a `sleep` of its own length, by which the test sees that a trial is in it.
"""

from __future__ import annotations

import io
import itertools
import os
import tarfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from support.cluster import Cluster, RunSeen
from support.waiting import until
from trialog.cli.stack.options import StackOptions

pytestmark = pytest.mark.slow
ORPHAN_S = 6
TOML = """
schema_version = "1.4"
{toml}
[environment]
docker_image = "base"
workdir = "/app"
{environment}
"""
VERDICT = "cat answer.txt > /logs/verifier/reward.txt"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def workers() -> Generator[Cluster]:
    """Every service, with two workers; what a dead one left ends soon."""
    env = {"sandbox": {"TRIALOG_ORPHAN_S": str(ORPHAN_S)}}
    running = Cluster(StackOptions(sandboxes=2, judges=1, service_env=env))
    running.start()
    yield running
    running.stop()


def nap() -> str:
    """Return a command that takes a second and a half, and is like no other on this machine."""
    return f"sleep 1.5{os.getpid():07}{next(_numbers):03}"


def write(folder: Path, solve: str, test: str, *, toml: str = "", environment: str = "") -> Path:
    """Write a task; its tests count how often they ran."""
    files = {
        "task.toml": TOML.format(toml=toml, environment=environment),
        "instruction.md": "Write 1 into answer.txt.\n",
        "solution/solve.sh": f"#!/bin/sh\n{solve}\n",
        "tests/test.sh": f"#!/bin/sh\necho run >> /logs/verifier/runs.txt\n{test}\n",
    }
    for path, text in files.items():
        place = folder / "task" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


def ask(workers: Cluster, folder: Path) -> RunSeen:
    return workers.run(
        tasks={"path": str(folder)}, agent="oracle", n_samples=1, images={"base": "host"}
    )


def kill_the_holder(workers: Cluster, command: str) -> None:
    """Wait until a command runs, then kill the worker that has its trial."""
    until(lambda: running(command))
    (name,) = until(lambda: [n for n in workers.running("sandbox") if holds(workers, n)])
    workers.kill_and_wait(name)


def holds(workers: Cluster, name: str) -> bool:
    """Whether a worker has a trial; one that is being started again has none."""
    try:
        return workers.held(name) >= 1
    except httpx.TransportError:
        return False


def running(command: str) -> list[psutil.Process]:
    words = command.split()
    return [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == words]


def ended(workers: Cluster, run: RunSeen, reward: float = 1.0) -> dict[str, Any]:
    """Wait for the end; return the trial, which has its one reward."""
    assert run.wait(timeout_s=60)["state"] == "completed"
    (trial,) = run.trials().values()
    assert (trial["state"], trial["verifier_reward"]) == ("judged", reward)
    for kind in ("TrajectoryRecorded", "TrialVerified", "Judged"):
        assert len(run.events(kind)) == 1, kind
    return trial


def losses(run: RunSeen) -> list[str]:
    """Return the stages that lost a worker: every attempt stays visible."""
    failed = run.events("TrialAttemptFailed")
    assert {event["data"]["failure"] for event in failed} == {"lost"}
    return [event["data"]["stage"] for event in failed]


def nothing_is_left(workers: Cluster) -> bool:
    root = workers.stack.layout.sandboxes
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(root) in line]
    return not [*mounts, *root.glob("run/*"), *root.glob("scratch/*/[!.]*")]


def test_killed_in_set_up(workers: Cluster, tmp_path: Path) -> None:
    command = nap()
    check = f'healthcheck = {{command = "{command}", timeout_sec = 30}}'
    solve = "echo 1 > answer.txt"
    run = ask(workers, write(tmp_path, solve, VERDICT, environment=check))
    kill_the_holder(workers, command)
    ended(workers, run)
    assert losses(run) == ["generate"]
    until(lambda: nothing_is_left(workers), timeout_s=60)


def test_killed_in_a_turn_the_next_attempt_begins_pristine(
    workers: Cluster, tmp_path: Path
) -> None:
    command = nap()
    solve = (
        "if [ -e seen ] || [ -e /tmp/seen ]; then echo 0 > answer.txt; exit; fi\n"
        f"touch seen /tmp/seen; {command}; echo 1 > answer.txt"
    )
    run = ask(workers, write(tmp_path, solve, VERDICT))
    kill_the_holder(workers, command)
    ended(workers, run)
    assert losses(run) == ["generate"]
    until(lambda: nothing_is_left(workers), timeout_s=60)


def test_killed_while_what_the_agent_left_is_kept(workers: Cluster, tmp_path: Path) -> None:
    """In a collect hook: the agent is done, and nothing is on the log yet."""
    command = nap()
    toml = f'[[verifier.collect]]\ncommand = "{command}"'
    run = ask(workers, write(tmp_path, "echo 1 > answer.txt", VERDICT, toml=toml))
    kill_the_holder(workers, command)
    ended(workers, run)
    assert losses(run) == ["generate"]


def test_killed_between_agent_and_verifier(workers: Cluster, tmp_path: Path) -> None:
    """While the verifier's own image is built: the agent's work is on the log."""
    command = nap()
    toml = 'artifacts = ["/app/answer.txt"]\n[verifier]\nenvironment_mode = "separate"'
    folder = write(tmp_path, "echo 1 > answer.txt", VERDICT, toml=toml)
    tests = folder / "task/tests"
    tests.joinpath("Dockerfile").write_text(
        f"FROM base\nRUN {command}\nWORKDIR /app\nCOPY test.sh /tests/test.sh\n"
    )
    run = ask(workers, folder)
    run.wait_for("TrajectoryRecorded")
    kill_the_holder(workers, command)
    trial = ended(workers, run)
    assert trial["mode"] == "separate"
    assert losses(run) == ["verify"]


@pytest.mark.parametrize(("service", "mode"), [("", "restored"), ("sleep 600 &", "shared")])
def test_killed_in_the_verifier_it_is_waited_for(
    workers: Cluster, tmp_path: Path, service: str, mode: str
) -> None:
    """The next worker goes on in the sandbox: neither agent nor tests run twice."""
    command = nap()
    solve = f"{service}\necho 1 > answer.txt"
    run = ask(workers, write(tmp_path, solve, f"{command}; {VERDICT}"))
    kill_the_holder(workers, command)
    trial = ended(workers, run)
    assert trial["mode"] == mode
    assert losses(run) == ["verify"]
    assert record(workers, run, "runs.txt") == "run\n"
    until(lambda: nothing_is_left(workers), timeout_s=60)


def record(workers: Cluster, run: RunSeen, name: str) -> str:
    """Return a file that the verifier left, from the trial's folder as it is exported."""
    (trial_id,) = run.trials()
    url = f"/runs/{run.run_id}/trials/{trial_id}/files"
    answer: httpx.Response = workers.http.get(url)
    answer.raise_for_status()
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        (member,) = [each for each in tar if each.name.endswith(f"verifier/{name}")]
        file = tar.extractfile(member)
        assert file is not None
        return file.read().decode()


def test_services_that_died_are_unscored(workers: Cluster, tmp_path: Path) -> None:
    """What the agent left running is gone with its sandbox: that is no verdict on its work."""
    command, service = nap(), nap().replace("sleep 1.5", "sleep 600.5")
    folder = write(tmp_path, f"{service} &\necho 1 > answer.txt", f"{command}; {VERDICT}")
    run = ask(workers, folder)
    until(lambda: running(command))
    (process,) = running(service)
    init = process.parent()
    assert init is not None
    init.kill()
    run.wait(timeout_s=60)
    (trial,) = run.trials().values()
    assert (trial["state"], trial["reward"]) == ("skipped", None)
    assert trial["error"] == "ServicesLostError"
    assert len(run.events("TrajectoryRecorded")) == 1
    until(lambda: nothing_is_left(workers), timeout_s=60)
