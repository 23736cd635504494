"""The `trialog` command as a user or a script runs it, against a server of the API's contract."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fake_api import RUN, FakeDriver, Served, make_dead_letter, make_trial, serve
from trialog.cli.commands.results import RUN_KEYS, STEP_KEYS, TRIAL_KEYS
from trialog.cli.discovery import RunningStack, announce

TRIALOG = str(Path(sys.executable).with_name("trialog"))
RUN_FILE = "n_steps: 1\n"
SCRIPT: list[dict[str, Any]] = [
    {"type": "RunRequested", "data": {"spec": {"n_steps": 1}}},
    {"type": "TrialRequested", "data": {"trial_id": "s0-p0-n0", "step": 0}},
    {"type": "Judged", "data": {"trial_id": "s0-p0-n0", "step": 0, "reward": 2.0, "n_turns": 1}},
    {"type": "StepApplied", "data": {"step": 0, "trained": True, "mean_reward": 2.0}},
]
COMPLETED = {"type": "RunCompleted", "data": {"weights_version": 1, "weights_digest": "d"}}
FAILED = {"type": "RunFailed", "data": {"reason": "fail_fast: s0-p0-n0"}}


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(FakeDriver()) as server:
        yield server


@pytest.fixture
def driver(served: Served) -> FakeDriver:
    return served.driver


@pytest.fixture
def env(served: Served, tmp_path: Path) -> dict[str, str]:
    """An environment of its own, with the server's address."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TRIALOG_", "XDG_"))}
    return clean | {"TRIALOG_URL": served.url, "XDG_RUNTIME_DIR": str(tmp_path)}


def trialog(
    env: dict[str, str], *arguments: str, text: str = ""
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [TRIALOG, *arguments], env=env, input=text, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    return done


def test_a_watched_run_ends_its_output_with_its_state(driver: FakeDriver, env: dict[str, str]):
    driver.script = [*SCRIPT, COMPLETED]
    done = trialog(env, "run", "-", "--set", "lr=1", "--watch", "-o", "json", text=RUN_FILE)
    assert done.returncode == 0, done.stderr
    [run_id] = driver.runs
    assert json.loads(done.stdout.splitlines()[-1]) == {"run_id": run_id, "state": "completed"}
    assert driver.runs[run_id]["spec"] == {"n_steps": 1, "lr": 1.0}
    assert "StepApplied" not in done.stdout
    assert "mean reward 2.000" in done.stderr
    assert "RunCompleted" in done.stderr


@pytest.mark.parametrize("last", [FAILED, {"type": "RunCancelled", "data": {}}])
def test_a_watched_run_that_does_not_complete_is_exit_1(
    driver: FakeDriver, env: dict[str, str], last: dict[str, Any]
):
    driver.script = [*SCRIPT, last]
    done = trialog(env, "run", "-", "--watch", "-o", "json", text=RUN_FILE)
    assert done.returncode == 1
    state = json.loads(done.stdout.splitlines()[-1])["state"]
    assert state == ("failed" if last is FAILED else "cancelled")


def test_a_run_that_is_not_watched_is_only_started(driver: FakeDriver, env: dict[str, str]):
    done = trialog(env, "run", "-", "-o", "json", text=RUN_FILE)
    assert done.returncode == 0
    assert json.loads(done.stdout)["state"] == "running"


def test_interrupting_a_watch_says_that_the_run_goes_on(driver: FakeDriver, env: dict[str, str]):
    driver.add_run()
    driver.append("RunRequested", spec={"n_steps": 1})
    watching = subprocess.Popen(
        [TRIALOG, "watch", RUN], env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert watching.stderr is not None
    assert "RunRequested" in watching.stderr.readline()
    watching.send_signal(signal.SIGINT)
    _, rest = watching.communicate(timeout=20)
    assert watching.returncode == 130
    assert f"the run goes on; see it with: trialog watch {RUN}" in rest


def test_watching_lives_through_a_restart_of_the_driver(served: Served, env: dict[str, str]):
    driver = served.driver
    driver.add_run()
    driver.append("RunRequested", spec={"n_steps": 1})
    watching = subprocess.Popen(
        [TRIALOG, "watch", RUN, "-o", "json"],
        env=env,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stderr is not None
    watching.stderr.readline()
    served.stop()
    driver.append("RunCompleted", weights_version=0, weights_digest="d")
    assert "waiting for it" in watching.stderr.readline()
    served.start()
    out, _ = watching.communicate(timeout=20)
    assert watching.returncode == 0
    assert json.loads(out) == {"run_id": RUN, "state": "completed"}


def test_on_a_terminal_progress_is_a_table(driver: FakeDriver, env: dict[str, str]):
    driver.add_run()
    driver.play([*SCRIPT, COMPLETED])
    ours, theirs = pty.openpty()
    watching = subprocess.Popen(
        [TRIALOG, "watch", RUN],
        env=env | {"TERM": "xterm", "COLUMNS": "120"},
        stderr=theirs,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    out, _ = watching.communicate(timeout=20)
    assert out == f"{RUN} completed\n"
    assert b"reward" in shown
    assert b"2.000" in shown


def test_show_has_exactly_the_shape_that_scripts_rely_on(driver: FakeDriver, env: dict[str, str]):
    step = dict.fromkeys(STEP_KEYS, 1) | {"weights_digest": "d", "state": "applied", "n_judged": 6}
    source = {"state": "executed", "run_id": RUN, "position": 9}
    driver.add_run(steps=[step | {"trained": False, "provenance": source}])
    found = json.loads(trialog(env, "show", RUN, "-o", "json").stdout)
    assert list(found) == list(RUN_KEYS)
    assert list(found["steps"][0]) == list(STEP_KEYS)
    assert "spec" in json.loads(trialog(env, "show", RUN, "--full", "-o", "json").stdout)
    shown = trialog(env, "show", RUN)
    assert shown.returncode == 0
    assert "train_step" in shown.stdout
    assert "not trained" in shown.stdout


def test_show_has_every_step_of_a_long_run(driver: FakeDriver, env: dict[str, str]):
    steps = [dict.fromkeys(STEP_KEYS, 1) | {"step": n, "weights_digest": "d"} for n in range(5)]
    driver.add_run(steps=steps[:2], steps_cursor="2")
    driver.steps[RUN] = steps
    driver.page_size = 2
    found = json.loads(trialog(env, "show", RUN, "-o", "json").stdout)
    assert [step["step"] for step in found["steps"]] == [0, 1, 2, 3, 4]


def test_dead_letters_are_listed_and_offered_again(driver: FakeDriver, env: dict[str, str]):
    driver.dead = [make_dead_letter(f"{RUN}/w{n}/build_world") for n in range(3)]
    driver.page_size = 2
    keys = [one["key"] for one in driver.dead]
    found = json.loads(trialog(env, "dead-letters", "--all", "-o", "json").stdout)
    assert [one["key"] for one in found] == keys
    first = trialog(env, "dead-letters", "--run", RUN)
    assert "UnknownEventError" in first.stdout and "--all" in first.stderr
    done = trialog(env, "dead-letters", "--redrive", keys[0], "--redrive", keys[1])
    assert done.stdout.splitlines() == [f"{key} is offered again soon" for key in keys[:2]]
    assert trialog(env, "dead-letters", "--redrive", keys[0]).returncode == 2
    assert [one["key"] for one in driver.dead] == keys[2:]


def test_trials_come_all_or_by_page(driver: FakeDriver, env: dict[str, str]):
    driver.add_run()
    driver.page_size = 2
    driver.trials[RUN] = [make_trial(f"s{n}-p0-n0") | {"extra": 1} for n in range(5)]
    found = json.loads(trialog(env, "trials", RUN, "--all", "-o", "json").stdout)
    assert [trial["trial_id"] for trial in found] == [f"s{n}-p0-n0" for n in range(5)]
    assert set(map(tuple, found)) == {TRIAL_KEYS}
    first = trialog(env, "trials", RUN, "-o", "json")
    assert len(json.loads(first.stdout)) == 2
    assert "--all" in first.stderr
    one = trialog(env, "trials", RUN, "--step", "3")
    assert "s3-p0-n0" in one.stdout
    assert "s2-p0-n0" not in one.stdout


def test_weights_are_not_rounded(driver: FakeDriver, env: dict[str, str]):
    driver.add_run()
    prior = {"w0": [1.0, 0.1 + 0.2, *[1.0] * 6]}
    driver.weights[RUN] = [
        {"version": n, "digest": "d", "doc_prior": prior, "x": 1} for n in range(2)
    ]
    found = json.loads(trialog(env, "weights", RUN, "--version", "0", "-o", "json").stdout)
    assert found == {"version": 0, "digest": "d", "doc_prior": prior}
    assert json.loads(trialog(env, "weights", RUN, "-o", "json").stdout)["version"] == 1
    assert "w0" in trialog(env, "weights", RUN).stdout


def test_events_are_lines(driver: FakeDriver, env: dict[str, str]):
    driver.add_run()
    driver.play([*SCRIPT, COMPLETED])
    lines = trialog(env, "events", RUN, "-o", "json", "--after", "1").stdout.splitlines()
    assert [json.loads(line)["position"] for line in lines] == [2, 3, 4, 5]
    followed = trialog(env, "events", RUN, "--follow").stdout.splitlines()
    assert len(followed) == 5
    assert "trial_id=s0-p0-n0" in followed[1]


def test_a_trajectory_is_shown_without_its_control_sequences(
    driver: FakeDriver, env: dict[str, str]
):
    driver.add_run()
    evil = "\x1b]0;owned\x07[red]\u202e"
    driver.trajectories[f"{RUN}/s0-p0-n0"] = {
        "trial_id": "s0-p0-n0",
        "turns": [{"doc": 1, "found": False, "output": evil}],
        "answer": evil,
    }
    shown = trialog(env, "trajectory", f"{RUN}/s0-p0-n0").stdout
    assert "\x1b" not in shown and "\u202e" not in shown
    assert r"\x1b]0;owned\x07[red]" in shown
    raw = json.loads(trialog(env, "trajectory", f"{RUN}/s0-p0-n0", "-o", "json").stdout)
    assert raw["answer"] == evil


def test_runs_are_listed_and_steered(driver: FakeDriver, env: dict[str, str]):
    driver.add_run()
    driver.add_run("r-bbbbbbbbbbbbbbbb", state="completed")
    found = json.loads(trialog(env, "runs", "--state", "running", "-o", "json").stdout)
    assert [run["run_id"] for run in found] == [RUN]
    assert "r-bbbbbbbbbbbbbbbb" in trialog(env, "runs").stdout
    assert trialog(env, "pause", RUN).stdout == f"{RUN} paused\n"
    assert json.loads(trialog(env, "resume", RUN, "-o", "json").stdout)["state"] == "running"
    assert trialog(env, "cancel", RUN).returncode == 0
    refused = trialog(env, "pause", RUN)
    assert refused.returncode == 2
    assert "The run has ended" in refused.stderr


def test_what_the_server_refuses_names_the_field(driver: FakeDriver, env: dict[str, str]):
    driver.failures = [422]
    done = trialog(env, "run", "-", text=RUN_FILE)
    assert done.returncode == 2
    assert "trialog: Not ready" in done.stderr


def test_an_api_key_that_is_missing_is_exit_4(driver: FakeDriver, env: dict[str, str]):
    driver.api_key = "k"
    done = trialog(env, "runs")
    assert done.returncode == 4
    assert "TRIALOG_API_KEY" in done.stderr
    assert trialog(env | {"TRIALOG_API_KEY": "k"}, "runs").returncode == 0
    driver.failures = [500]
    assert trialog(env | {"TRIALOG_API_KEY": "k"}, "runs").returncode == 4


def test_no_server_is_exit_3(served: Served, env: dict[str, str]):
    served.stop()
    done = trialog(env, "runs")
    assert done.returncode == 3
    assert "trialog up" in done.stderr


@pytest.fixture
def found(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a command that has to find its server by itself."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", env["XDG_RUNTIME_DIR"])
    return {name: value for name, value in env.items() if name != "TRIALOG_URL"}


def test_a_running_stack_is_found(served: Served, found: dict[str, str]):
    assert announce(RunningStack(served.url, os.getpid(), "/d"))
    done = trialog(found, "runs", "-o", "json")
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_of_several_stacks_the_one_that_is_asked_is_named(served: Served, found: dict[str, str]):
    older = announce(RunningStack("http://127.0.0.1:9", os.getppid(), "/older"))
    assert older is not None
    os.utime(older, (1, 1))
    announce(RunningStack(served.url, os.getpid(), "/newer"))
    done = trialog(found, "runs")
    assert f"2 stacks run: asking {served.url} (the stack on /newer, started last)" in done.stderr
    missing = trialog(found, "show", RUN)
    assert missing.returncode == 2
    assert f"asked was {served.url} (the stack on /newer" in missing.stderr


def test_what_is_not_there_names_who_was_asked(served: Served, env: dict[str, str]):
    done = trialog(env, "show", RUN)
    assert done.returncode == 2
    assert done.stderr.endswith(f"; asked was {served.url}\n")


def test_a_run_is_watched_where_it_was_started(served: Served, found: dict[str, str]):
    """Where that is goes into the note, since a later command may find another stack."""
    announce(RunningStack(served.url, os.getpid(), "/d"))
    served.driver.script = SCRIPT
    watching = subprocess.Popen(
        [TRIALOG, "run", "-", "--watch"],
        env=found,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stdin is not None and watching.stderr is not None
    watching.stdin.write(RUN_FILE)
    watching.stdin.close()
    assert "RunRequested" in watching.stderr.readline()
    watching.send_signal(signal.SIGINT)
    [run_id] = served.driver.runs
    with watching.stderr:
        assert f"trialog watch {run_id} --url {served.url}\n" in watching.stderr.read()
    assert watching.wait(timeout=20) == 130


def test_help_is_quick_and_documents_the_exit_codes(env: dict[str, str]):
    trialog(env, "--help")  # compiles
    start = time.monotonic()
    done = trialog(env, "--help")
    took_s = time.monotonic() - start
    assert "Exit codes: 0 done" in done.stdout
    assert took_s < 2  # idle it is 0.3 s; this machine may be busy
    heavy = "import sys, trialog.cli.main as m; m.build_app(); print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", heavy], env=env, text=True).split()
    assert not {"httpx", "pydantic", "rich.live", "yaml", "asyncio", "msgspec"} & set(loaded)
