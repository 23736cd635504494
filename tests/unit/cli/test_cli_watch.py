"""What the live views say of a run's progress."""

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console
from support.fake_api import make_event
from trialog.cli.progress import RunProgress
from trialog.cli.watch import LineView, follow, headline, table


def events(steps: int) -> Iterator[Any]:
    yield make_event(1, "RunRequested", spec={"n_steps": steps})
    for step in range(steps):
        trial: dict[str, Any] = {"trial_id": f"s{step}-p0-n0", "step": step}
        yield make_event(4 * step + 2, "TrialRequested", **trial)
        yield make_event(4 * step + 3, "Judged", **trial, reward=1.0, n_turns=2)
        yield make_event(4 * step + 4, "StepApplied", step=step, trained=True, mean_reward=1.0)
    yield make_event(4 * steps + 1, "RunFailed", reason="\x1b[2Jwhy")


def progress(steps: int) -> RunProgress:
    found = RunProgress()
    for event in events(steps):
        found.apply(event)
    return found


def drawn(found: RunProgress, notice: str = "") -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(table(found, notice))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_long_run_shows_its_latest_steps():
    text = drawn(progress(30), "the server does not answer")
    shown = [line.split()[0] for line in text.splitlines() if line[:5].strip().isdecimal()]
    assert shown == [str(step) for step in range(18, 30)]
    assert "30/30 steps" in text
    assert "the server does not answer" in text


def test_before_the_first_event_there_is_nothing_to_say():
    assert headline(RunProgress()) == "waiting for the first event"


def test_a_reason_is_no_control_sequence():
    assert r"failed: \x1b[2Jwhy, 1/1 steps" in headline(progress(1))


def test_lines_are_one_a_second_and_one_for_each_turn_of_the_run(
    capsys: pytest.CaptureFixture[str],
):
    found = follow(events(2), LineView())
    assert found.ended
    said = capsys.readouterr().err.splitlines()
    assert "RunRequested" in said[0]
    assert said[1].endswith("elapsed 0.0 s")
    assert sum(line.endswith("applied") for line in said) == 2
    assert r"RunFailed reason=\x1b[2Jwhy" in said[-1]
