"""What the live views say of a run's progress."""

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console
from support.fake_api import make_event
from trialog.cli.progress import RunProgress, StepProgress
from trialog.cli.watch import LineView, describe, follow, headline, table


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


def drawn(found: RunProgress, notice: str = "", width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
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


def test_a_table_of_large_counts_fits_80_columns():
    counts: dict[str, Any] = {
        "requested": 20_000,
        "recorded": 19_999,
        "judged": 19_998,
        "judge_calls": 20_001,
    }
    step = StepProgress(999, **counts, skipped=7, cancelled=8, retries=9, lost=6)
    step.mean_reward, step.mean_turns = 2.345, 3.25
    text = drawn(RunProgress("r-abcdefghijklmnop", steps={999: step}), width=80)
    [row] = [line for line in text.splitlines() if line.strip().startswith("999")]
    assert row.split() == (
        ["999", "20000", "19999", "19998", "7", "8", "9", "6", "2.345", "3.25", "20001", "0.0", "s"]
    )
    assert "…" not in text


def test_lost_and_cancelled_trials_are_told_apart_and_only_when_there_are_some():
    plain, odd = StepProgress(0), StepProgress(0, cancelled=2, lost=6)
    assert "skipped 0  retries 0  mean" in describe(plain)
    assert "skipped 0 (+2 cancelled)  retries 0 (+6 lost)  mean" in describe(odd)
    assert "lost" not in drawn(RunProgress("r-abcdefghijklmnop", steps={0: plain}))
    assert "lost" in drawn(RunProgress("r-abcdefghijklmnop", steps={0: odd}))


def test_a_run_without_a_learner_has_no_weights_and_no_judge_to_count(
    capsys: pytest.CaptureFixture[str],
):
    spec = {"n_steps": 1, "learner": "none"}
    told: list[Any] = [
        make_event(1, "RunRequested", spec=spec),
        make_event(2, "TrialRequested", trial_id="s0-p0-n0", step=0),
        make_event(3, "StepApplied", step=0, trained=False, mean_reward=1.0),
        make_event(4, "RunCompleted", weights_version=1, weights_digest="ab" * 32),
    ]
    found = follow(told, LineView())
    said = capsys.readouterr().err
    assert "judge calls" not in said and "weights" not in said and "RunCompleted" in said
    assert "calls" not in drawn(found)
    assert "judge calls 0" in describe(StepProgress(0))
    assert "judge calls 2" in describe(StepProgress(0, judge_calls=2), judges=False)


def test_a_reason_of_several_lines_is_one(capsys: pytest.CaptureFixture[str]):
    reason = "build of t (w1):\n  exit code 1\n\nno  make\n"
    failed: list[Any] = [make_event(1, "RunFailed", reason=reason)]
    found = follow(failed, LineView())
    for line in (capsys.readouterr().err, headline(found)):
        assert "build of t (w1): exit code 1 no  make" in line


def test_lines_have_no_long_digests(capsys: pytest.CaptureFixture[str]):
    first = make_event(1, "RunRequested", spec={}, root="r-x", initial_weights="ab" * 32)
    last = make_event(2, "RunCompleted", weights_version=1, weights_digest="ab" * 32)
    both: list[Any] = [first, last]
    follow(both, LineView())
    said = capsys.readouterr().err.splitlines()
    assert said[0].split() == ["0.0", "s", "RunRequested"]
    assert said[1].endswith("weights_digest=abababababab")
