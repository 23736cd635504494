"""`trialog resume --set budget.KEY=VALUE`, and how a budget is shown."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.fake_api import RUN, FakeDriver, Served, serve
from trialog.cli import main
from trialog.cli.runfile import BadRunFile, load_limits
from trialog.client import AsyncTrialogClient, TrialogClient

Command = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(FakeDriver()) as server:
        yield server


@pytest.fixture
def trialog(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run a command; return its exit code and what it wrote to stdout and stderr."""
    monkeypatch.setenv("TRIALOG_URL", served.url)

    def call(*arguments: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["trialog", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.run()
        written = capsys.readouterr()
        return ended.value.code, written.out, written.err

    return call


def test_a_run_is_resumed_with_another_budget(served: Served, trialog: Command) -> None:
    run = served.driver.add_run(state="paused")
    run["budget"]["limits"] = {"judge_calls": 7, "tokens": 900, "usd": 0.5}
    arguments = ("--set", "budget.usd=2.5", "--set", "budget.judge_calls=null")
    code, out, _ = trialog("resume", RUN, *arguments, "-o", "json")
    assert (code, json.loads(out)) == (0, {"run_id": RUN, "state": "running"})
    assert run["budget"]["limits"] == {"judge_calls": None, "tokens": 900, "usd": 2.5}
    trialog("resume", RUN)
    assert run["budget"]["limits"]["usd"] == 2.5, "without --set the budget stays"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("lr=1.0", "lr: only budget.* can change as a run is resumed; fork it"),
        ("budget.judge_call=3", "budget.judge_call: unknown key; did you mean judge_calls?"),
        ("budget.judge_calls=-1", "budget.judge_calls: should be greater than or equal to 0"),
        ("budget.judge_calls=three", "budget.judge_calls: should be a valid integer"),
        ("budget.usd=.nan", "budget.usd: should be a finite number"),
        ("budget=null", "budget: should be a valid dictionary"),
        ("budget.usd", "expected KEY=VALUE"),
    ],
)
def test_what_cannot_be_set_is_named_before_anything_is_sent(
    served: Served, trialog: Command, setting: str, message: str
) -> None:
    served.driver.add_run(state="paused")
    code, _, err = trialog("resume", RUN, "--set", setting)
    assert code == 2 and message in err, err
    assert served.driver.runs[RUN]["state"] == "paused"


def test_settings_are_read_as_yaml() -> None:
    assert load_limits(["budget.usd=2", "budget.tokens=1_000"]) == {"usd": 2, "tokens": 1000}
    with pytest.raises(BadRunFile):
        load_limits(["budget.tokens=1e3"])


def test_why_a_run_is_paused_and_what_is_left_are_shown(served: Served, trialog: Command) -> None:
    run = served.driver.add_run(state="paused")
    assert "budget:" not in trialog("show", RUN)[1]
    reason = "budget.usd: 0.49 of 0.5 is spent; resume with a higher budget"
    run["pause_reason"] = reason
    run["budget"] = {
        "limits": {"judge_calls": 12_000_000, "tokens": None, "usd": 0.5},
        "spent": {"judge_calls": 11_999_999, "tokens": 85, "usd": 0.490007},
    }
    shown = trialog("show", RUN)[1]
    assert f"paused: {reason}" in shown
    wanted = "budget: 11999999 of 12000000 judge calls, 0.490007 of 0.5 usd spent"
    assert wanted in shown.splitlines()
    assert trialog("pause", RUN)[1] == f"{RUN} paused: {reason}\n"


def test_both_clients_send_the_limits_that_change(served: Served) -> None:
    run = served.driver.add_run(state="paused")
    with TrialogClient(served.url) as client:
        assert client.resume(RUN, budget={"usd": 1.5})["state"] == "running"
        assert run["budget"]["limits"] == {"judge_calls": None, "tokens": None, "usd": 1.5}

    async def again() -> None:
        async with AsyncTrialogClient(served.url) as client:
            await client.resume(RUN, budget={"usd": None, "judge_calls": 4})
            await client.resume(RUN)

    asyncio.run(again())
    assert run["budget"]["limits"] == {"judge_calls": 4, "tokens": None, "usd": None}


def test_a_watched_run_that_is_paused_now_tells_how_it_goes_on(
    served: Served, trialog: Command
) -> None:
    """Of a pause that is over nothing is told."""
    run = served.driver.add_run(pause_reason="budget.usd: 5 of 5 are spent")
    for type_ in ("RunRequested", "RunPaused", "RunResumed", "RunCompleted"):
        served.driver.append(type_, spec={"n_steps": 1})
    _, _, told = trialog("watch", RUN)
    assert "go on with" not in told
    run["state"] = "paused"
    code, _, told = trialog("watch", RUN)
    assert code == 1
    assert f"{RUN} is paused: budget.usd: 5 of 5" in told
    assert f"go on with: trialog resume {RUN} --set budget.usd=MORE" in told


@pytest.mark.parametrize(
    ("tasks", "see"), [({"path": "/t", "count": 3}, "tasks list"), (None, "trials")]
)
def test_trials_that_ended_unscored_are_told_last(
    served: Served, trialog: Command, tasks: dict[str, Any] | None, see: str
) -> None:
    run = served.driver.add_run()
    run["spec"] = {"n_steps": 1, "tasks": tasks}
    for number in range(3):
        served.driver.append("TrialRequested", trial_id=f"s0-p{number}-n0", step=0)
    served.driver.append("Judged", trial_id="s0-p0-n0", reward=1.0, n_turns=1)
    for kind, number in (("TrialSkipped", 1), ("TrialCancelled", 2)):
        served.driver.append(kind, trial_id=f"s0-p{number}-n0", reason="x")
    served.driver.append("RunCompleted")
    code, out, err = trialog("watch", RUN, "-o", "json")
    assert (code, json.loads(out)["state"]) == (0, "completed")
    assert err.splitlines()[-1] == f"2 of 3 trials unscored: trialog {see} {RUN}"


def test_nothing_is_said_of_a_run_in_which_all_are_scored(served: Served, trialog: Command) -> None:
    served.driver.add_run()
    served.driver.append("TrialRequested", trial_id="s0-p0-n0", step=0)
    served.driver.append("Judged", trial_id="s0-p0-n0", reward=1.0, n_turns=1)
    served.driver.append("RunCompleted")
    assert "unscored" not in trialog("watch", RUN)[2]
