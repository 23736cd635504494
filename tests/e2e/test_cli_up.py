"""`trialog up` and `trialog demo` with every real service."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = [pytest.mark.stack, pytest.mark.slow]

TRIALOG = str(Path(sys.executable).with_name("trialog"))
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRIALOG_")}
    return clean | {"XDG_RUNTIME_DIR": str(tmp_path)}


def call(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TRIALOG, *arguments], env=env, capture_output=True, text=True, timeout=200
    )


@pytest.fixture
def up(env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A stack in the foreground, and what it said once it was up."""
    command = [TRIALOG, "up", "--port", "0", "-o", "json", "--sandboxes", "1", "--judges", "1"]
    stack = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert stack.stdout is not None
    try:
        yield stack, json.loads(stack.stdout.readline())
    finally:
        if stack.poll() is None:
            stack.send_signal(signal.SIGINT)
        stack.communicate(timeout=30)


def test_a_stack_is_found_used_and_stopped_without_a_trace(
    up: tuple[subprocess.Popen[str], dict[str, Any]], env: dict[str, str]
):
    stack, said = up
    children = psutil.Process(stack.pid).children(recursive=True)
    assert set(said["processes"].values()) <= {child.pid for child in children}
    quick = ["--set", "n_steps=1", "--set", "judge_latency_s=0", "--set", "tool_latency_s=0"]
    done = call(env, "run", str(EXAMPLES / "reference.yaml"), *quick, "--watch", "-o", "json")
    assert done.returncode == 0, done.stderr
    run_id = json.loads(done.stdout.splitlines()[-1])["run_id"]
    shown = json.loads(call(env, "show", run_id, "-o", "json").stdout)
    assert shown["steps"][0]["mean_reward"] == 1.601
    trials = json.loads(call(env, "trials", run_id, "--all", "-o", "json").stdout)
    assert [trial["state"] for trial in trials] == ["judged"] * 6
    read = json.loads(call(env, "trajectory", f"{run_id}/s0-p0-n0", "-o", "json").stdout)
    assert read["turns"] == trials[0]["turns"]
    weights = json.loads(call(env, "weights", run_id, "--version", "0", "-o", "json").stdout)
    assert weights["doc_prior"]["w0"] == [1.0] * 8
    assert call(env, "cancel", run_id).returncode in (0, 2)
    assert call(env, "show", "r-aaaaaaaaaaaaaaaa").returncode == 2

    stack.send_signal(signal.SIGINT)
    assert stack.wait(timeout=30) == 0
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    assert not Path(said["data"]).exists()
    assert call(env, "runs", "--url", said["url"]).returncode == 3
    assert list(Path(env["XDG_RUNTIME_DIR"]).glob("trialog/*")) == []


def test_a_second_stack_on_a_folder_is_refused(env: dict[str, str], tmp_path: Path):
    data = str(tmp_path / "data")
    command = [TRIALOG, "up", "--port", "0", "-o", "json", "--data", data]
    first = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    try:
        assert json.loads(first.stdout.readline())["kept"]
        second = call(env, "up", "--data", data)
        assert second.returncode == 5
        assert "already runs" in second.stderr
        assert "Traceback" not in second.stderr
    finally:
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=30)
        assert first.returncode == 0


# How long something takes says nothing on a busy machine: `make demo` holds these, tests do not.
TIMED = (
    "New work soon",
    "Replay of a recorded step",
    "A world's fork and first command",
    "The unchanged fork is complete soon",
    "The whole demo is quick",
)


@pytest.mark.parametrize("options", [[], ["--standby"]], ids=["cold restart", "warm standby"])
def test_every_claim_of_the_demo_holds(env: dict[str, str], tmp_path: Path, options: list[str]):
    result = tmp_path / "demo.json"
    done = call(env, "demo", "--json", str(result), *options)
    rows = json.loads(result.read_text())["rows"]
    failed = [row for row in rows if not row["ok"]]
    assert [row for row in failed if not row["claim"].startswith(TIMED)] == [], done.stderr
    assert done.returncode == (1 if failed else 0)
    assert len(rows) > 35
