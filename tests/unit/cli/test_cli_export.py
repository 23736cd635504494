"""`trialog export` and `trialog tasks list` against a server that follows the API's contract."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from support.exports import tar
from support.fake_api import RUN, FakeDriver, Served, make_trial, serve
from support.fake_exports import make_row
from trialog.cli import main
from trialog.cli.export import parquet
from trialog.cli.export.progress import Progress


class Done(NamedTuple):
    code: Any
    out: str
    told: str


Call = Callable[..., Done]


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(FakeDriver()) as server:
        server.driver.add_run()
        server.driver.trials[RUN] = [make_trial("s0-p0-n0"), make_trial("s0-p1-n0")]
        yield server


@pytest.fixture
def trialog(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    monkeypatch.setenv("TRIALOG_URL", served.url)

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["trialog", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main.run()
        said = capsys.readouterr()
        return Done(ended.value.code, said.out, said.err)

    return call


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


ALL_FILES = [
    "config.json",
    "result.json",
    "s0-p0-n0/agent/log.txt",
    "s0-p0-n0/result.json",
    "s0-p1-n0/agent/log.txt",
    "s0-p1-n0/result.json",
]


def test_a_run_is_a_folder_of_trials(trialog: Call, tmp_path: Path) -> None:
    done = trialog("export", RUN, "--format", "harbor", "-o", tmp_path / "a" / "job")
    assert (done.code, done.out) == (0, "")
    assert "2 trials exported\n" in done.told
    assert files(tmp_path / "a" / "job") == ALL_FILES


def test_an_export_goes_on_where_it_was(trialog: Call, served: Served, tmp_path: Path) -> None:
    """What ended since is added; what is there is neither fetched nor changed."""
    trials = served.driver.trials[RUN]
    trials[1]["state"] = "verified"
    first = trialog("export", RUN, "-o", tmp_path)
    assert "1 trials exported" in first.told and "1 have not ended" in first.told
    (tmp_path / "s0-p0-n0" / "agent" / "log.txt").write_text("mine")
    (tmp_path / ".partial-s0-p1-n0").mkdir()
    (tmp_path / ".partial-s0-p1-n0" / "half").write_text("half")
    trials[1]["state"] = "skipped"
    second = trialog("export", RUN, "-o", tmp_path)
    assert "1 trials exported, 1 were there" in second.told
    assert served.driver.exports.asked.count("s0-p0-n0") == 1
    assert (tmp_path / "s0-p0-n0" / "agent" / "log.txt").read_text() == "mine"
    assert files(tmp_path) == ALL_FILES


def test_a_download_that_breaks_off_is_asked_for_again(
    trialog: Call, served: Served, tmp_path: Path
) -> None:
    served.driver.exports.cut = 2
    assert trialog("export", RUN, "-o", tmp_path).code == 0
    assert files(tmp_path) == ALL_FILES


@pytest.mark.parametrize("there", ["notes.txt", "config.json"])
def test_a_folder_with_something_else_in_it_is_left_alone(
    trialog: Call, tmp_path: Path, there: str
) -> None:
    (tmp_path / there).write_text('{"job_name": "r-ponmlkjihgfedcba"}')
    done = trialog("export", RUN, "-o", tmp_path)
    assert (done.code, files(tmp_path)) == (2, [there])
    assert "no export of" in done.told


def test_a_folder_of_a_trials_name_that_is_no_trial_is_left_alone(
    trialog: Call, tmp_path: Path
) -> None:
    assert trialog("export", RUN, "-o", tmp_path).code == 0
    (tmp_path / "s0-p1-n0" / "result.json").write_text("{}")
    done = trialog("export", RUN, "-o", tmp_path)
    assert done.code == 2 and "move it away" in done.told
    assert (tmp_path / "s0-p1-n0" / "result.json").read_text() == "{}"


def hostile(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        archive.addfile(member)
    return out.getvalue()


@pytest.mark.parametrize(
    "archive",
    [
        hostile("../out"),
        hostile("/etc/out"),
        hostile("a/../../out"),
        hostile("a\x1b[2J"),
        hostile("link", tarfile.SYMTYPE, "/etc"),
        hostile("fifo", tarfile.FIFOTYPE),
        hostile("/".join("d" * 90)),
        tar({"a": b""})[:512] + tar({"a": b""}),
        b"no archive",
    ],
)
def test_an_archive_that_is_not_plain_is_not_unpacked(
    trialog: Call, served: Served, tmp_path: Path, archive: bytes
) -> None:
    served.driver.exports.raw["s0-p0-n0"] = archive
    done = trialog("export", RUN, "-o", tmp_path / "job")
    assert done.code == 4 and "the server sent" in done.told and "\x1b" not in done.told
    assert files(tmp_path) == ["job/config.json", "job/result.json"]
    assert list((tmp_path / "job").glob(".partial-*")) == []


def test_an_archive_above_the_limits_is_not_unpacked(
    trialog: Call, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trialog.cli.export.unpack.MOST_BYTES", 100)
    served.driver.exports.files["s0-p0-n0"] = {"large": b"x" * 101}
    done = trialog("export", RUN, "-o", tmp_path)
    assert done.code == 4 and "above its limits" in done.told


def rows(served: Served) -> list[dict[str, Any]]:
    none = dict.fromkeys(("prompt_token_ids", "completion_token_ids", "loss_mask", "logprobs"))
    tokens = {"prompt_token_ids": [1], "completion_token_ids": [2], "loss_mask": [1]}
    segment = tokens | {"logprobs": None}
    unscored = {"reward": None, "reward_valid": False, "rewards": None, "turns": [], "prompt": []}
    served.driver.exports.rows = [
        make_row("s0-p0-n0", RUN),
        make_row("s0-p1-n0", RUN, **none),
        make_row("s0-p2-n0", RUN, **none, segments=[segment, segment]),
        make_row("s0-p3-n0", RUN, **none, **unscored, error="RewardFileEmptyError"),
    ]
    served.driver.exports.counts |= {"scored": 3, "unscored": 1, "open": 2}
    return served.driver.exports.rows


def test_rows_are_lines_of_json(trialog: Call, served: Served, tmp_path: Path) -> None:
    known = rows(served)
    done = trialog("export", RUN, "--format", "jsonl")
    assert [json.loads(line) for line in done.out.splitlines()] == known[:3]
    assert done.out.isascii()
    assert done.told.splitlines() == [
        "3 rows written",
        "1 trials without a verdict left out; --all has them",
        "2 trials have not ended",
        "1 rows have no token ids: none were recorded",
        "1 rows are of several sequences, in their segments",
    ]
    path = tmp_path / "rows.jsonl"
    assert trialog("export", RUN, "--format", "jsonl", "--all", "-o", path).code == 0
    assert [json.loads(line) for line in path.read_text().splitlines()] == known
    again = trialog("export", RUN, "--format", "jsonl", "-o", path)
    assert again.code == 2 and "is there already" in again.told
    assert files(tmp_path) == ["rows.jsonl"]


def test_rows_are_parquet(
    trialog: Call, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same values, in groups of rows."""
    monkeypatch.setattr(parquet, "GROUP_ROWS", 3)
    known = rows(served)
    path = tmp_path / "rows.parquet"
    done = trialog("export", RUN, "--format", "parquet", "--all", "-o", path)
    assert (done.code, files(tmp_path)) == (0, ["rows.parquet"])
    assert pq.ParquetFile(path).num_row_groups == 2
    table = pq.read_table(path)
    assert table.schema.equals(parquet.SCHEMA)
    found = table.to_pylist(maps_as_pydicts="strict")
    assert found == known
    assert found[3]["reward"] is None  # not 0


def test_a_run_without_rows_is_a_file_without_rows(trialog: Call, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    assert trialog("export", RUN, "--format", "parquet", "-o", path).code == 0
    assert pq.read_table(path).num_rows == 0


def test_without_pyarrow_the_mend_is_told(
    trialog: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "trialog.cli.export.parquet", raising=False)
    done = trialog("export", RUN, "--format", "parquet", "-o", tmp_path / "rows.parquet")
    assert done.code == 2 and "pip install './cli[parquet]'" in done.told
    assert files(tmp_path) == []


@pytest.mark.parametrize("kind", ["harbor", "parquet"])
def test_a_format_that_needs_a_path_says_so(trialog: Call, kind: str) -> None:
    done = trialog("export", RUN, "--format", kind)
    assert done.code == 2 and f"--format {kind} needs a path" in done.told


def test_a_disk_that_takes_nothing_is_told(trialog: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for kind in ("harbor", "jsonl", "parquet"):
        done = trialog("export", RUN, "--format", kind, "-o", tmp_path / "file" / "x")
        assert done.code == 2 and "Not a directory" in done.told, done.told


def test_a_reader_that_goes_away_is_no_error(served: Served) -> None:
    rows(served)
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "trialog.cli.main", "export", RUN, "--format", "jsonl"],
        env=os.environ | {"TRIALOG_URL": served.url},
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_run_that_is_not_there_writes_nothing(trialog: Call, tmp_path: Path) -> None:
    done = trialog("export", "r-ponmlkjihgfedcba", "-o", tmp_path / "job")
    assert (done.code, files(tmp_path)) == (2, [])


def test_progress_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    progress = Progress("trials exported", 4, lambda: now[0])
    for at in (1.0, 2.5, 3.0, 5.0):
        now[0] = at
        progress.add()
    assert capsys.readouterr().err.splitlines() == [
        "2 of 4 trials exported ...",
        "4 of 4 trials exported ...",
    ]


def test_tasks_are_listed_with_the_runs_mean(trialog: Call, served: Served) -> None:
    served.driver.exports.counts |= {
        "unscored": 2,
        "rewards": {"a": 0.5, "b": None},
        "errors": {"RewardFileEmptyError": 2},
    }
    done = trialog("tasks", "list", RUN)
    (line,) = [line for line in done.out.splitlines() if line.split()[:1] == ["hello"]]
    assert line.split() == [
        "hello", "1", "1", "2", "1", "a=0.5", "b=-", "separate", "RewardFileEmptyError", "x2",
    ]  # fmt: skip
    assert "mean reward  1 over 1 of 1 tasks" in done.out
    assert "trials       1 scored, 2 unscored, 0 open" in done.out
    found = json.loads(trialog("tasks", "list", RUN, "-o", "json").out)
    assert found["tasks"][0]["errors"] == {"RewardFileEmptyError": 2}


def test_trials_of_tasks_show_task_rewards_mode_and_error(trialog: Call, served: Served) -> None:
    served.driver.trials[RUN] = [
        make_trial(
            "s0-p0-n0", task="hello", rewards={"a": 1.0, "b": 0.5}, mode="separate",
            error="AgentTimeoutError",
        )
    ]  # fmt: skip
    done = trialog("trials", RUN)
    (line,) = [line for line in done.out.splitlines() if "s0-p0-n0" in line]
    assert {"hello", "separate", "a=1", "b=0.5", "AgentTimeoutError"} <= set(line.split())
    (found,) = json.loads(trialog("trials", RUN, "-o", "json").out)
    assert (found["task"], found["mode"], found["verifier_reward"]) == ("hello", "separate", None)


def test_one_trial_shows_what_became_of_it(trialog: Call, served: Served) -> None:
    failure = {"stage": "verify", "n": 0, "failure": "task", "error": "X", "message": "no file"}
    skipped = make_trial(
        "s0-p1-n0",
        task="hello",
        state="skipped",
        reward=None,
        skip_reason="retries_exhausted",
        skip_message="verify",
        error="RewardFileNotFoundError",
        failures=[failure],
    )
    served.driver.trials[RUN] = [make_trial("s0-p0-n0"), skipped]
    shown = trialog("trial", f"{RUN}/s0-p1-n0").out
    fields = dict(line.split(None, 1) for line in shown.splitlines() if len(line.split()) > 1)
    assert (fields["task"], fields["reward"]) == ("hello", "-")
    assert fields["state"] == "skipped (retries_exhausted: verify)"
    assert fields["error"] == "RewardFileNotFoundError"
    assert fields["verify"].split() == ["0", "task", "X", "no", "file"]
    hint = f": trialog trial {RUN}/s0-p1-n0 --logs\n"
    assert trialog("trial", f"{RUN}/s0-p1-n0").told == f"what its tests said{hint}"
    skipped |= {"n_turns": None, "failures": [failure | {"stage": "generate", "failure": "agent"}]}
    assert trialog("trial", f"{RUN}/s0-p1-n0").told == f"where its agent broke{hint}"
    skipped["failures"] = [failure]
    reference = trialog("trial", f"{RUN}/s0-p0-n0").out
    assert "task" not in reference and "failed" not in reference
    found = json.loads(trialog("trial", f"{RUN}/s0-p1-n0", "-o", "json").out)
    assert found["failures"] == [failure]


def a_step(name: str, **changes: Any) -> dict[str, Any]:
    step = {"name": name, "played": True, "n_turns": 2, "rewards": {"reward": 0.5}, "error": None}
    return step | {"message": None, "min_reward": None, "stopped": False} | changes


def test_a_trial_shows_its_steps_and_the_gate_that_stopped_it(
    trialog: Call, served: Served
) -> None:
    late = {"error": "AgentTimeoutError", "message": "the agent took\nmore than 3 s"}
    steps = [
        a_step("build", min_reward=0.8, stopped=True, **late),
        a_step("serve", played=False, n_turns=None, rewards=None),
    ]
    about = {"error": late["error"], "error_message": late["message"], "steps": steps}
    served.driver.trials[RUN] = [make_trial("s0-p0-n0", task="steps", **about)]
    lines = [line.strip() for line in trialog("trial", f"{RUN}/s0-p0-n0").out.splitlines()]
    said = "AgentTimeoutError: the agent took more than 3 s"
    assert f"error     {said}" in lines
    build, serve = (next(line for line in lines if line.startswith(n)) for n in ("build", "serve"))
    assert build.split(None, 2)[:2] == ["build", "2"]
    assert "reward=0.5" in build and said in build
    assert build.endswith("stopped: below its gate of 0.8")
    assert serve.split() == ["serve", "-", "-", "-", "not", "played"]


def test_the_logs_of_a_trial_are_its_tests_output_and_tracebacks(
    trialog: Call, served: Served
) -> None:
    served.driver.trials[RUN] = [make_trial("s0-p0-n0", task="hello")]
    served.driver.exports.files["s0-p0-n0"] = {
        "verifier/test-stdout.txt": b"early\n" * 5_000 + b"1 failed\x1b[2J\n",
        "exception.txt": b"Traceback\nKeyError: 'boom'\n",
        "attempts/0/exception.txt": b"Traceback\nKeyError: 'boom'\n",
        "attempts/1/exception.txt": b"AgentTimeoutError: said above\n",
        "artifacts/test-stdout.txt": b"the agent's own",
        "steps/a/verifier/test-stdout.txt": b"",
        "steps/b/verifier/test-stdout.txt": b"",
    }
    shown = trialog("trial", f"{RUN}/s0-p0-n0", "--logs").out
    assert "    1 failed\\x1b[2J\n" in shown and "\x1b" not in shown
    assert "bytes before: trialog export has them]" in shown and len(shown) < 60_000
    assert shown.count("KeyError: 'boom'") == 1, "an attempt's is the trial's"
    assert "the agent's own" not in shown and "said above" not in shown
    for step in "ab":
        assert f"steps/{step}/verifier/test-stdout.txt\n    (nothing)\n" in shown
    found = json.loads(trialog("trial", f"{RUN}/s0-p0-n0", "--logs", "-o", "json").out)
    assert found["logs"]["exception.txt"] == "Traceback\nKeyError: 'boom'\n"
