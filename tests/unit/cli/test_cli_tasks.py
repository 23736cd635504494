"""Checking tasks, and runs whose tasks are read and uploaded by the command."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fake_api import FakeDriver, Served, serve
from support.fake_tasks import names
from support.task_folders import FILES, TOML, written
from trialog.cli import main
from trialog.cli.runfile import BadRunFile, load_changes, load_run_file

EXAMPLES = Path(__file__).parents[3] / "examples"
Trialog = Callable[..., tuple[int, str, str]]


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(FakeDriver()) as server:
        yield server


@pytest.fixture
def trialog(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Trialog:
    monkeypatch.setenv("TRIALOG_URL", served.url)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def call(*arguments: str, text: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["trialog", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with pytest.raises(SystemExit) as ended:
            main.run()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out, said.err

    return call


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder beside a run file: two tasks."""
    for name in ("b", "a"):
        written(tmp_path / "tasks" / name)
    return tmp_path / "tasks"


def checked(answer: tuple[int, str, str]) -> tuple[int, list[dict[str, Any]]]:
    return answer[0], json.loads(answer[1])


def test_check_says_of_each_task_whether_it_runs(trialog: Trialog, tasks: Path) -> None:
    written(tasks / "c", {"task.toml": TOML + "gpus = 1\nskills_dir = '/s'\n"})
    written(tasks / "d", {"instruction.md": None})
    code, found = checked(trialog("tasks", "check", str(tasks), "-o", "json"))
    assert code == 1
    assert [(one["task"], one["runs"]) for one in found] == [
        ("a", True),
        ("b", True),
        ("c", False),
        ("d", False),
    ]
    assert all(list(one) == ["task", "runs", "reason", "mend", "warnings"] for one in found)
    assert "GPU" in found[2]["reason"] and "gpus = 0" in found[2]["mend"]
    assert any("skills_dir" in warning for warning in found[2]["warnings"])
    assert found[3]["reason"] == "instruction.md: is missing"


def test_check_asks_no_server(trialog: Trialog, served: Served, tasks: Path) -> None:
    served.stop()
    code, out, err = trialog("tasks", "check", str(tasks / "a"))
    assert code == 0
    assert ["a", "yes", "-", "-"] in [line.split() for line in out.splitlines()]
    assert "debian:bookworm-slim" in err, "what a run must say"


def test_check_for_a_run(trialog: Trialog, tasks: Path) -> None:
    file = tasks.parent / "run.yaml"
    file.write_text("tasks: {path: tasks}\nagent: oracle\nimages: {other: host}\n")
    code, found = checked(trialog("tasks", "check", str(tasks), "-f", str(file), "-o", "json"))
    assert code == 1
    assert "debian:bookworm-slim is not among the run's images" in found[0]["reason"]
    arguments = ("tasks", "check", str(tasks), "-f", str(file), "--set", "provider=docker")
    assert trialog(*arguments)[0] == 2, "host is no image of a daemon's"
    assert trialog(*arguments, "--set", "images={}")[0] == 0
    assert trialog("tasks", "check", str(tasks), "--set", "agent=policy")[0] == 1


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nothing", "cannot be read: No such file or directory"),
        ("empty", "holds no task"),
        ("empty/file", "Not a directory"),
    ],
)
def test_check_of_what_holds_no_task_is_bad_input(
    trialog: Trialog, tmp_path: Path, path: str, said: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "file").write_text("x")
    code, _, err = trialog("tasks", "check", str(tmp_path / path))
    assert code == 2 and said in err and path in err


def test_every_example_task_runs_as_the_example_says(trialog: Trialog) -> None:
    file = str(EXAMPLES / "harbor.yaml")
    code, found = checked(
        trialog("tasks", "check", str(EXAMPLES / "tasks"), "-f", file, "-o", "json")
    )
    assert code == 0 and len(found) >= 12
    assert [one["warnings"] for one in found] == [[]] * len(found)


def test_a_run_uploads_its_tasks_from_beside_its_file(
    trialog: Trialog, served: Served, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tasks.parent / "run.yaml"
    file.write_text("tasks: {path: tasks}\nagent: oracle\nn_samples: 2\n")
    elsewhere = tasks.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert trialog("run", str(file))[0] == 0
    (archive,) = served.driver.tasks.archives
    assert names(archive) == {(name, path) for name in "ab" for path in FILES}
    (spec,) = [run["spec"] for run in served.driver.runs.values()]
    assert list(spec["tasks"]) == ["archive"]
    del spec["tasks"]
    assert spec == {"agent": "oracle", "n_samples": 2}, "defaults are the server's"


def test_a_path_that_is_set_is_relative_to_where_one_is(
    trialog: Trialog, served: Served, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tasks.parent / "elsewhere").mkdir()
    file = tasks.parent / "elsewhere" / "run.yaml"
    file.write_text("agent: nop\n")
    monkeypatch.chdir(tasks)
    assert trialog("run", str(file), "--set", "tasks.path=a")[0] == 0
    text = "tasks: {path: b}\nagent: nop\n"
    assert trialog("run", "-", text=text)[0] == 0
    uploaded = [{name for name, _ in names(one)} for one in served.driver.tasks.archives]
    assert uploaded == [{"a"}, {"b"}]


def test_one_task_keeps_its_name_also_where_it_is_named_by_a_dot(
    trialog: Trialog, served: Served, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tasks / "a")
    assert trialog("run", "-", text="tasks: {path: .}\nagent: nop\n")[0] == 0
    assert {name for name, _ in names(served.driver.tasks.archives[0])} == {"a"}


def test_warnings_are_told_once_and_apart_from_the_result(trialog: Trialog, tasks: Path) -> None:
    for name in "cdef":
        written(tasks / name, {"task.toml": "[agent]\nx = 1\n"})
    text = f"tasks: {{path: {tasks}}}\nagent: nop\n"
    code, out, err = trialog("run", "-", "-o", "json", text=text)
    assert code == 0 and json.loads(out)["run_id"]
    lines = err.splitlines()
    assert lines[0] == "c, d, e and 1 more: [agent].x is ignored: no such key is known"
    assert "gets no network" in lines[1] and len(lines) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task.toml": None}, "b: task.toml: is missing"),
        ({"task.toml": "["}, "b: task.toml: is no TOML"),
        ({"instruction.md": ""}, "b: instruction.md: is empty"),
    ],
)
def test_a_broken_task_is_named_and_nothing_is_sent(
    trialog: Trialog, served: Served, tasks: Path, changes: dict[str, str | None], said: str
) -> None:
    for path, text in changes.items():
        (tasks / "b" / path).unlink() if text is None else (tasks / "b" / path).write_text(text)
    text = f"tasks: {{path: {tasks}}}\nagent: nop\n"
    code, _, err = trialog("run", "-", text=text)
    assert code == 2 and said in err
    assert served.driver.tasks.archives == [] and served.driver.runs == {}


def test_several_broken_tasks_are_told_at_once(
    trialog: Trialog, served: Served, tasks: Path
) -> None:
    for name in "cdefghi":
        path, text = ("instruction.md", "") if name < "h" else ("task.toml", f"# {name}\n[")
        written(tasks / name, {path: text})
    code, _, err = trialog("run", "-", text=f"tasks: {{path: {tasks}}}\nagent: nop\n")
    assert code == 2
    lines = err.splitlines()
    assert lines[0].endswith(
        "tasks.path: c, d, e and 2 more: instruction.md: is empty; say in it "
        "what the agent is to do"
    )
    assert lines[-1] == (
        f"tasks.path: 7 tasks cannot be read; see each with: trialog tasks check {tasks}"
    )
    assert len(lines) == 3 and "h, i: task.toml: is no TOML" in lines[1]
    assert served.driver.runs == {} and served.driver.tasks.archives == []


def test_check_tells_a_refusal_that_many_share_once(trialog: Trialog, tasks: Path) -> None:
    for name in "cde":
        written(tasks / name, {"instruction.md": "" if name < "e" else None})
    code, out, err = trialog("tasks", "check", str(tasks), "--set", "provider=docker")
    rows = [line.split() for line in out.splitlines()]
    assert ["d", "no", "as", "c", "-"] in rows
    assert out.count("is empty") == 1 and out.count("is missing") == 1
    assert (code, err) == (1, "3 of 5 tasks do not run\n")


def test_a_fork_uploads_other_tasks(trialog: Trialog, served: Served, tasks: Path) -> None:
    run = served.driver.add_run()["run_id"]
    assert trialog("fork", run, "--set", f"tasks.path={tasks}")[0] == 0
    assert len(served.driver.tasks.archives) == 1
    assert trialog("fork", run, "--set", "seed=1")[0] == 0
    assert len(served.driver.tasks.archives) == 1


def test_an_upload_is_sent_again_whole(trialog: Trialog, served: Served, tasks: Path) -> None:
    served.driver.failures = [503, 502]
    text = f"tasks: {{path: {tasks}}}\nagent: nop\n"
    assert trialog("run", "-", text=text)[0] == 0
    assert len(served.driver.tasks.archives) == 1
    assert len(served.driver.seen("PUT", "/task-archives")) == 3


def test_without_the_reader_it_is_said_what_to_install(
    trialog: Trialog, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if f"{name}.".startswith("trialog.spine.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "trialog.spine", None)
    code, _, err = trialog("tasks", "check", str(tasks))
    assert code == 2 and "pip install ./spine" in err
    again, _, told = trialog("run", "-", text=f"tasks: {{path: {tasks}}}\nagent: nop\n")
    assert again == 2 and told == err and "PUT /task-archives" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks: {path: x}", "agent: say which one plays the tasks"),
        ("tasks: {path: x, archive: y}\nagent: nop", "tasks.archive: is given beside tasks.path"),
        ("tasks: {}\nagent: nop", "tasks: give the path"),
        ("tasks: {paths: x}\nagent: nop", "tasks.paths: unknown key; did you mean path?"),
        ("tasks: {path: x}\nagent: policy", "agent policy knows the reference world"),
        ("tasks: {path: x}\nagent: nop\nlearner: bandit", "learner must be none with tasks"),
        ("agent: nop", "agent nop works on tasks"),
    ],
)
def test_a_run_file_of_tasks_is_checked_here(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(BadRunFile) as caught:
        load_run_file(str(file))
    assert said in str(caught.value)


def test_a_run_file_says_no_more_than_it_does(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("tasks: {path: ../t}\nagent: nop\ntimeouts: {judge_s: 9}\nn_steps: 2\n")
    found = load_run_file(str(file), ["faults.hang=[s1-p9-n0]"])
    assert found["tasks"] == {"path": str(tmp_path / ".." / "t")}
    assert found["timeouts"]["judge_s"] == 9
    assert set(found) == {"tasks", "agent", "timeouts", "n_steps", "faults"}


def test_changes_of_a_fork_root_their_path_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert load_changes(["tasks.path=t"], {}) == {"tasks": {"path": "/t"}}
    with pytest.raises(BadRunFile, match="tasks"):
        load_changes(["tasks=3"], {})
