"""What `trialog fork`, `compare` and `lineage` send, write and exit with, in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.fake_api import RUN, FakeDriver, Served, serve
from support.fake_forks import plan_of, planned, tree_run
from trialog.cli import main, output
from trialog.driver.api.compare_schemas import Comparison, Lineage
from trialog.driver.api.examples import EXAMPLES

OTHER = "r-ponmlkjihgfedcba"
FORK = "r-forkforkforkfork"
RUBRIC = {"name": "mine", "criteria": [{"name": "style", "prompt": "Clear?"}]}


@dataclass(frozen=True)
class Done:
    """What a call of the command gave."""

    code: object
    out: str
    err: str

    def row(self, first: str) -> list[str]:
        """Return the words of the one line that begins so."""
        [line] = [line for line in self.out.splitlines() if line.split()[:1] == [first]]
        return line.split()


Trialog = Callable[..., Done]


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(FakeDriver()) as server:
        server.driver.add_run()
        server.driver.add_run(OTHER)
        yield server


@pytest.fixture
def driver(served: Served) -> FakeDriver:
    return served.driver


@pytest.fixture
def trialog(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Trialog:
    monkeypatch.setenv("TRIALOG_URL", served.url)

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["trialog", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.run()
        said = capsys.readouterr()
        return Done(ended.value.code, said.out, said.err)

    return call


def test_a_fork_without_a_change_is_sent_without_one(driver: FakeDriver, trialog: Trialog) -> None:
    done = trialog("fork", RUN, "-o", "json")
    assert done.code == 0
    assert json.loads(done.out.splitlines()[-1]) == {"run_id": FORK, "state": "running"}
    assert driver.forks.asked == [({}, {})]
    (sent,) = driver.seen("POST", f"/runs/{RUN}/fork")
    assert sent["idempotency-key"]
    assert trialog("fork", RUN).out == f"{FORK} running\n"


def test_a_fork_sends_what_is_to_differ(driver: FakeDriver, trialog: Trialog) -> None:
    options = ("--rubric", "v2-efficiency@1", "--mode", "rescore", "--from-step", "2")
    labels = ("--label", "team=1e3", "--label", "why=caf\xe9: a = b")
    settings = (
        "--set",
        "n_steps=6",
        "--set",
        "faults.flaky_trial_rate=0.5",
        "--set",
        "judge.model=m",
    )
    assert trialog("fork", RUN, *options, *labels, *settings).code == 0
    ((query, body),) = driver.forks.asked
    assert query == {"rubric": "v2-efficiency@1", "mode": "rescore"}
    assert body == {
        "n_steps": 6,
        "faults": {"flaky_trial_rate": 0.5},
        "judge": {"model": "m"},
        "labels": {"team": "1e3", "why": "caf\xe9: a = b"},
        "from_step": 2,
    }


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_rubric_from_a_file_is_sent_whole(
    driver: FakeDriver, trialog: Trialog, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"mine{suffix}"
    file.write_text(json.dumps(RUBRIC))
    assert trialog("fork", RUN, "--rubric", str(file)).code == 0
    assert driver.forks.asked == [({}, {"rubric": RUBRIC})]


@pytest.mark.parametrize(("end", "code"), [("RunCompleted", 0), ("RunFailed", 1)])
def test_a_watched_fork_ends_its_output_with_its_state(
    driver: FakeDriver, trialog: Trialog, end: str, code: int
) -> None:
    def play(run_id: str) -> None:
        driver.append("RunRequested", run_id, spec={"n_steps": 1})
        driver.append(end, run_id, reason="why")

    driver.forks.on_fork = play
    done = trialog("fork", RUN, "--watch", "-o", "json")
    assert done.code == code
    state = "completed" if code == 0 else "failed"
    assert json.loads(done.out.splitlines()[-1]) == {"run_id": FORK, "state": state}


def test_a_dry_run_shows_the_plan_and_starts_nothing(driver: FakeDriver, trialog: Trialog) -> None:
    why, later = "rubric digest changed", "weights digest changed since step 0"
    driver.forks.plan = plan_of(
        RUN,
        [
            planned(
                0,
                build_world=(3, 0, 0, ""),
                generate=(6, 0, 0, ""),
                judge_call=(0, 6, 0, "criterion style: added"),
                judge=(0, 6, 0, why),
                train_step=(0, 1, 0, "its judgments are made anew"),
            ),
            planned(1, generate=(0, 0, 6, later), judge=(0, 0, 6, later)),
            planned(2, generate=(0, 0, 6, later), judge=(0, 0, 6, later)),
        ],
    )
    done = trialog("fork", RUN, "--rubric", "v2-efficiency", "--dry-run")
    assert done.code == 0
    assert driver.forks.asked == [({"rubric": "v2-efficiency", "dry_run": "true"}, {})]
    assert FORK not in driver.runs
    assert f"A fork of {RUN} as it is at position 147, mode recompute" in done.out
    assert done.row("0") == ["0", "build_world", "3", "0", "0"]
    assert done.row("1-2")[:5] == ["1-2", "generate", "0", "0", "12"]
    assert done.row("all")[:5] == ["all", "build_world", "3", "0", "0"]
    lines = [line.split() for line in done.out.splitlines()]
    assert ["judge", "0", "6", "0", "rubric", "digest", "changed"] in lines
    assert ["judge", "calls", "6", "to", "18"] in lines
    assert ["USD", "0.0036", "to", "0.0107"] in lines
    plan = trialog("fork", RUN, "--dry-run", "-o", "json")
    assert json.loads(plan.out) == driver.forks.plan


def test_a_plan_without_an_estimate_says_so(driver: FakeDriver, trialog: Trialog) -> None:
    nothing = {"at_least": 0, "at_most": 0}
    estimate = {"judge_calls": nothing, "tokens": None, "usd": None, "basis": "none recorded"}
    driver.forks.plan = plan_of(RUN, [planned(0, generate=(6, 0, 0, ""))], estimate)
    done = trialog("fork", RUN, "--dry-run")
    assert "tokens        not known" in done.out
    assert "judge calls   0\n" in done.out
    assert "unknown: " not in done.out


def comparison(**changes: Any) -> dict[str, Any]:
    """Return two runs of three trials: judged in both, skipped in one, missing in the other."""
    found = json.loads(json.dumps(EXAMPLES[Comparison]))
    (judged,) = found["trials"]
    skipped = judged["a"] | {"state": "skipped", "reward": None, "judge_score": None, "scores": {}}
    nobody = {"delta": None, "same_trajectory": None}
    found["trials"] += [
        {"trial_id": "s0-p2-n0", "step": 0, "a": judged["a"], "b": skipped} | nobody,
        {"trial_id": "s1-p0-n0", "step": 1, "a": None, "b": judged["b"]} | nobody,
    ]
    return found | changes


def test_two_runs_are_shown_side_by_side(driver: FakeDriver, trialog: Trialog) -> None:
    driver.forks.comparison = comparison()
    done = trialog("compare", OTHER, RUN)
    assert done.code == 0
    assert done.row("run") == ["run", OTHER, RUN, "-"]
    assert done.row("mean")[-3:] == ["1.615", "2.412", "+0.796"]
    assert done.row("0") == ["0", "6", "1.615", "2.412", "+0.796", "executed", "executed"]
    both = done.row("s0-p1-n0")
    assert both[1:8] == ["2.322", "3.391", "+1.069", "GVJ", "gvJ", "yes", "+0.000"]
    assert both[-1] == OTHER
    assert done.row("s0-p2-n0")[1:7] == ["2.322", "skipped", "-", "GVJ", "GVJ", "-"]
    assert done.row("s1-p0-n0")[1:7] == ["-", "3.391", "-", "-", "gvJ", "-"]
    assert "g v j: recovered" in done.out
    assert "different trees" not in done.out
    driver.forks.comparison = comparison(same_tree=False)
    assert "different trees" in trialog("compare", OTHER, RUN).out


def test_a_comparison_of_all_trials_reads_every_page(driver: FakeDriver, trialog: Trialog) -> None:
    driver.forks.comparison = comparison()
    driver.forks.page_size = 2
    first = trialog("compare", OTHER, RUN, "-o", "json")
    assert len(json.loads(first.out)["trials"]) == 2
    assert "see them with --all" in first.err
    whole = trialog("compare", OTHER, RUN, "--all", "-o", "json")
    assert json.loads(whole.out) == driver.forks.comparison
    assert whole.err == ""
    step = json.loads(trialog("compare", OTHER, RUN, "--step", "1", "-o", "json").out)
    assert [trial["trial_id"] for trial in step["trials"]] == ["s1-p0-n0"]


@pytest.mark.parametrize("width", [80, 200])
def test_rows_fit_the_terminal(
    driver: FakeDriver, trialog: Trialog, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """On 80 columns too, run ids stand whole and each row is one line."""

    def terminal(*, stderr: bool = False) -> Console:
        return Console(
            file=sys.stderr if stderr else sys.stdout,
            width=width,
            force_terminal=True,
            color_system=None,
            highlight=False,
        )

    monkeypatch.setattr(output, "console", terminal)
    driver.forks.comparison = comparison()
    driver.forks.lineage = lineage_of_four()
    for command in (("compare", OTHER, RUN), ("lineage", RUN)):
        text = trialog(*command).out
        rows = [line for line in text.splitlines() if " forked " not in line]
        assert max(map(len, rows)) <= width, text
        assert OTHER in text and RUN in text
    assert ("tidiness" in trialog("compare", OTHER, RUN).out) == (width == 200)


def lineage_of_four() -> dict[str, Any]:
    """Return a root with two forks, of which the first has been forked to RUN."""
    second, third = "r-bbbbbbbbbbbbbbbb", "r-cccccccccccccccc"
    (root,) = EXAMPLES[Lineage]["ancestors"]
    changes = [{"field": "lr", "from": 2.0, "to": 1.0, "rubric": None}]
    parent = root | {"run_id": second, "position": 200, "changes": changes, "mode": "rescore"}
    return {
        "run_id": RUN,
        "root": OTHER,
        "ancestors": [parent, root | {"run_id": OTHER}],
        "runs": [
            tree_run(OTHER, None),
            tree_run(second, OTHER, rubric="v2-efficiency", mode="rescore"),
            tree_run(third, OTHER, state="failed", mean_reward=None),
            tree_run(RUN, second, from_step=2),
        ],
        "next_cursor": None,
    }


def test_a_lineage_is_drawn_as_a_tree(driver: FakeDriver, trialog: Trialog) -> None:
    driver.forks.lineage = lineage_of_four()
    driver.forks.page_size = 3
    text = trialog("lineage", RUN).out
    drawing = [line[:27] for line in text.splitlines() if "r-" in line][:4]
    assert [line[1:].rstrip() for line in drawing] == [
        OTHER,
        "├─ r-bbbbbbbbbbbbbbbb",
        f"│  └─ {RUN} *",
        "└─ r-cccccccccccccccc",
    ]
    assert "v2-efficiency, rescored" in text
    changes = text[text.index(" forked ") - 18 :].splitlines()
    assert changes[:2] == [
        f"r-bbbbbbbbbbbbbbbb forked {OTHER} at position 147, rescore:",
        "  rubric: v1 -> v2-efficiency",
    ]
    assert "    criterion efficiency: weight 0.3 -> 1" in changes
    assert changes[-3:] == [
        f"{RUN} forked r-bbbbbbbbbbbbbbbb at position 200, from step 2:",
        "  lr: 2 -> 1",
        "  mode: rescore -> recompute",
    ]
    found = json.loads(trialog("lineage", RUN, "-o", "json").out)
    assert found == driver.forks.lineage


def test_a_run_that_is_no_fork_is_drawn_alone(driver: FakeDriver, trialog: Trialog) -> None:
    driver.forks.lineage = {
        "run_id": RUN,
        "root": RUN,
        "ancestors": [],
        "runs": [tree_run(RUN, None)],
        "next_cursor": None,
    }
    done = trialog("lineage", RUN)
    assert f"{RUN} is no fork" in done.out
    assert f"\n {RUN} * " in done.out


def test_a_very_long_chain_of_forks_is_drawn(driver: FakeDriver, trialog: Trialog) -> None:
    names = [
        f"r-{'a' * 13}{chr(97 + n // 26 // 26 % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n % 26)}"
        for n in range(1500)
    ]
    runs = [tree_run(name, before) for before, name in zip([None, *names], names, strict=False)]
    driver.forks.page_size = 1000
    driver.forks.lineage = {
        "run_id": RUN,
        "root": names[0],
        "ancestors": [],
        "runs": runs,
        "next_cursor": None,
    }
    text = trialog("lineage", RUN).out
    assert all(name in text for name in names)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["fork", "x"], "is no run id"),
        (["fork", "r-qqqqqqqqqqqqqqqq"], "there is no run"),
        (["fork", RUN, "--set", "lr"], "expected KEY=VALUE"),
        (["fork", RUN, "--set", "n_step=1"], "n_step: unknown key; did you mean n_steps?"),
        (["fork", RUN, "--set", "lr=fast"], "lr: should be a valid number"),
        (["fork", RUN, "--set", "lr=.nan"], "lr: should be a finite number"),
        (["fork", RUN, "--set", "labels=x"], "labels: should be"),
        (["fork", RUN, "--set", "versions.agent=1"], """quote it: '"1"' on a command line"""),
        (["fork", RUN, "--set", "labels=x", "--label", "a=b"], "labels holds no settings"),
        (["fork", RUN, "--set", "from_step=1.5"], "from_step: should be a whole number"),
        (["fork", RUN, "--set", "from_step=1", "--from-step", "1"], "--from-step: is given by"),
        (["fork", RUN, "--from-step", "-1"], "--from-step"),
        (["fork", RUN, "--from-step", "9"], "from_step: is beyond the steps"),
        (["fork", RUN, "--label", "team"], "--label: 'team' is no KEY=VALUE"),
        (["fork", RUN, "--label", "TEAM=a"], "labels.TEAM"),
        (["fork", RUN, "--rubric", "Strict"], "--rubric: 'Strict' names no rubric"),
        (["fork", RUN, "--rubric", "v1", "--set", "rubric=v1"], "--rubric: is given by --set"),
        (["fork", RUN, "--set", "rubric=Strict"], "rubric: 'Strict' names no rubric"),
        (["fork", RUN, "--rubric", "./none.yaml"], "cannot be read"),
        (["fork", RUN, "--mode", "again"], "--mode"),
        (["fork", RUN, "--dry-run", "--watch"], "--watch: there is nothing to watch"),
        (["compare", RUN], "Missing argument"),
        (["compare", RUN, "x"], "is no run id"),
        (["compare", RUN, OTHER, "--step", "-1"], "--step"),
        (["compare", RUN, OTHER, "--step", "7"], "--step: neither run has begun step 7"),
        (["lineage", "x"], "is no run id"),
        (["lineage", "r-qqqqqqqqqqqqqqqq"], "there is no run"),
    ],
)
def test_bad_input_is_exit_2_and_starts_nothing(
    driver: FakeDriver,
    trialog: Trialog,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    expected: str,
) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    driver.forks.comparison = comparison(steps=[], trials=[])
    done = trialog(*arguments)
    assert done.code == 2, done.err
    assert expected in done.err
    assert done.out == ""
    assert FORK not in driver.runs


def test_an_unknown_rubric_hints_at_a_file_of_its_name(
    driver: FakeDriver, trialog: Trialog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    driver.forks.unknown_rubric = "mine"
    assert "./mine" not in trialog("fork", RUN, "--rubric", "mine").err
    (tmp_path / "mine.yaml").write_text("name: mine")
    done = trialog("fork", RUN, "--rubric", "mine")
    assert done.code == 2
    assert "rubric: mine is unknown; for the file write --rubric ./mine.yaml" in done.err


def test_a_rubric_file_says_what_is_wrong_with_it(
    driver: FakeDriver, trialog: Trialog, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\ncriteria: [{name: a, weight: -1}]")
    done = trialog("fork", RUN, "--rubric", str(file))
    assert (done.code, driver.forks.asked) == (2, [])
    assert f"{file}: criteria[0].weight: should be greater than or equal to 0" in done.err
