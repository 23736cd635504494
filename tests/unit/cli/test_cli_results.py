"""What `trialog show` and `trialog events` write of a run."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.fake_api import RUN, FakeDriver, Served, make_bill, serve
from trialog.cli import main
from trialog.cli.commands.results import RUN_KEYS

OTHER = "r-ponmlkjihgfedcba"
DIGEST = "0123456789abcdef" * 4


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(FakeDriver()) as server:
        yield server


@pytest.fixture
def trialog(served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("TRIALOG_URL", served.url)

    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["trialog", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.run()
        assert ended.value.code == 0
        return capsys.readouterr().out

    return call


def row(text: str, first: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.split()[:1] == [first]]
    return line.split()


def test_lost_attempts_are_a_column_when_there_are_some(served: Served, trialog):
    run = served.driver.add_run()
    stages = {"build_world": 0, "generate": 0, "verify": 0, "judge": 0, "train_step": 0}
    run["counts"]["lost"] = dict(stages)
    assert row(trialog("show", RUN), "action") == ["action", "executed", "recovered", "retried"]
    run["counts"]["lost"] = stages | {"generate": 6}
    text = trialog("show", RUN)
    assert row(text, "action")[-1] == "lost"
    assert row(text, "generate")[-1] == "6"
    assert row(text, "judge_call")[-1] == "-"


def test_what_was_spent_and_saved_is_a_line_each(served: Served, trialog):
    run = served.driver.add_run()
    assert "judge: 0 calls, 0 tokens sent, 0 received, 0.000000 USD\n" in trialog("show", RUN)
    assert "saved" not in trialog("show", RUN) and "without" not in trialog("show", RUN)
    run["cost"] |= make_bill(12) | {
        "saved_by_memo": make_bill(2),
        "saved_by_recovery": make_bill(6),
        "calls_started": 13,
        "calls_unrecorded": 1,
    }
    assert trialog("show", RUN).splitlines()[-4:] == [
        "judge: 12 calls, 828 tokens sent, 192 received, 0.005364 USD",
        "saved by memo: 2 calls, 138 tokens sent, 32 received, 0.000894 USD",
        "saved by recovery: 6 calls, 414 tokens sent, 96 received, 0.002682 USD",
        "without a reply on the log: 1 of 13 calls started "
        "(in flight, or not known to have been made)",
    ]
    assert json.loads(trialog("show", RUN, "-o", "json"))["cost"] == run["cost"]


def test_lines_of_events_have_short_digests_and_json_whole_ones(served: Served, trialog):
    served.driver.add_run()
    served.driver.append("StepApplied", step=0, digest=DIGEST, trial_id="s0-p0-n0")
    line = trialog("events", RUN)
    assert "digest=0123456789ab trial_id=s0-p0-n0" in line
    assert DIGEST in trialog("events", RUN, "-o", "json")


def test_what_a_fork_is_stands_in_the_table_and_in_json(served: Served, trialog):
    served.driver.forks.lineage = {
        "runs": [],
        "ancestors": [{"run_id": OTHER, "position": 147}, {"run_id": RUN, "position": 12}],
    }
    about = {"parent": OTHER, "mode": "rescore", "from_step": 2}
    served.driver.add_run(labels={"team": "blue"}, pause_reason="too dear", **about)  # type: ignore[arg-type]
    lines = trialog("show", RUN).splitlines()
    assert f"parent     {OTHER} as it was at position 147" in lines
    assert {"mode       rescore", "from step  2", "labels     team=blue"} <= set(lines)
    found = json.loads(trialog("show", RUN, "-o", "json"))
    assert list(found) == list(RUN_KEYS)
    told = about | {"parent_position": 147, "labels": {"team": "blue"}, "pause_reason": "too dear"}
    assert told.items() <= found.items()
    assert found["budget"] == served.driver.runs[RUN]["budget"]


def test_a_run_of_tasks_says_who_plays_which_and_where(served: Served, trialog):
    tasks = {"path": "/srv/tasks", "count": 3}
    run = served.driver.add_run()
    assert "agent" not in trialog("show", RUN)
    run["spec"] |= {"agent": "oracle", "provider": "docker", "tasks": tasks}
    lines = trialog("show", RUN).splitlines()
    fields = [(name, value) for name, value in (line.split(None, 1) for line in lines[2:5])]
    assert fields == [("agent", "oracle"), ("provider", "docker"), ("tasks", "3 (/srv/tasks)")]
    tasks |= {"path": None, "archive": DIGEST}
    assert f"3 (archive {DIGEST[:12]})\n" in trialog("show", RUN)


def test_no_trials_and_no_steps_are_none(served: Served, trialog):
    served.driver.add_run()
    assert trialog("trials", RUN) == "none\n"
    assert row(trialog("show", RUN), "steps") == ["steps", "none"]


@pytest.mark.parametrize(
    "command", [("events", RUN, "-o", "json"), ("events", RUN), ("show", RUN), ("runs",)]
)
def test_a_reader_that_goes_away_is_no_error(served: Served, command: tuple[str, ...]):
    served.driver.add_run()
    served.driver.append("RunRequested", spec={})
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "trialog.cli.main", *command],
        env=os.environ | {"TRIALOG_URL": served.url},
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
