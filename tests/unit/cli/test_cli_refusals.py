"""Help and refusals of the command line, in this process: exit codes, and what is said."""

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.fake_api import RUN, FakeDriver, Served, serve
from trialog.cli import main

RUN_FILE = "n_steps: 1\n"
COMMANDS = [
    *("run", "runs", "show", "trials", "trajectory", "events", "weights"),
    *("fork", "compare", "lineage"),
    *("watch", "cancel", "pause", "resume", "rubrics", "dead-letters", "up", "demo"),
]
BELOW = ["rubrics show", "rubrics put", "rubrics diff"]


@dataclass(frozen=True)
class Done:
    """What a call of the command gave."""

    code: object
    out: str
    err: str


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(FakeDriver()) as server:
        yield server


@pytest.fixture
def trialog(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("TRIALOG_URL", served.url)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")

    def call(*arguments: str, text: str = "") -> Done:
        monkeypatch.setattr(sys, "argv", ["trialog", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with pytest.raises(SystemExit) as ended:
            main.run()
        said = capsys.readouterr()
        return Done(ended.value.code, said.out, said.err)

    return call


@pytest.mark.parametrize("command", [*COMMANDS, *BELOW])
def test_every_command_has_help_with_an_example(command: str, trialog):
    done = trialog(*command.split(), "--help")
    assert done.code == 0
    assert f"Example: trialog {command}" in done.out
    assert "--output" in done.out
    if command not in ("up", "demo"):
        assert "TRIALOG_URL" in done.out


def test_the_help_lists_every_command_and_exit_code(trialog):
    done = trialog("--help")
    assert all(f" {command} " in done.out for command in COMMANDS)
    assert "Exit codes: 0 done" in done.out


@pytest.mark.parametrize(
    ("arguments", "text", "expected"),
    [
        (["run", "-"], "n_step: 1", "n_step: unknown key"),
        (["run", "-"], "faults: {flaky_trial_rate: 2}", "faults.flaky_trial_rate: should be"),
        (["run", "-"], "n_steps: [", "line 1, column"),
        (["run", "none.yaml"], "", "cannot be read"),
        (["run", "-", "--set", "lr"], RUN_FILE, "expected KEY=VALUE"),
        (["show", "../x"], "", "is no run id"),
        (["show", RUN], "", "there is no run"),
        (["trajectory", RUN], "", "is no trial"),
        (["trajectory", f"{RUN}/s0-p0-n00"], "", "is no trial"),
        (["dead-letters", "--run", "x"], "", "is no run id"),
        (["dead-letters", "--redrive", f"{RUN}/w0/build_world"], "", "there is no work"),
        (["rubrics", "show", "Mine"], "", "NAME[@VERSION]: 'Mine' names no rubric"),
        (["rubrics", "show", "mine"], "", "rubric mine is unknown"),
        (["rubrics", "show", "v1@2"], "", "rubric v1@2 is unknown"),
        (["rubrics", "diff", "v1", "v1@x"], "", "B: 'v1@x' names no rubric"),
        (["rubrics", "put", "none.yaml"], "", "cannot be read"),
        (["rubrics", "put", "-"], "name: a\ncriteria: []", "criteria: should have at least one"),
        (["rubrics", "put", "-", "--name", "v1"], "criteria: [{name: a}]", "is built in"),
        (["rubrics", "-o", "json", "show", "v1"], "", "--output: goes after show"),
        (["runs", "--label", "x"], "", "is no KEY=VALUE"),
        (["runs", "--state", "odd"], "", "--state"),
        (["runs", "--url", "nowhere"], "", "--url: 'nowhere' is no address"),
        (["nonsense"], "", "No such command"),
        (["up", "--host", "0.0.0.0", "--port", "0"], "", "set an API key"),
        (["up", "--sandboxes", "0"], "", "--sandboxes"),
        (["demo", "--json", "/nonexistent/x.json"], "", "--json: cannot write"),
    ],
)
def test_bad_input_is_exit_2(
    trialog, served: Served, arguments: list[str], text: str, expected: str
):
    done = trialog(*arguments, text=text)
    assert done.code == 2
    assert expected in done.err
    assert done.out == ""
    assert served.driver.seen("POST", "/runs") == []
