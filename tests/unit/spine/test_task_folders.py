"""Reading a task's folder without trusting it."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from support.task_folders import entries, written
from trialog.proto.tasks import files as limits
from trialog.proto.tasks.files import TaskProblem
from trialog.proto.tasks.task import Task, read_task
from trialog.spine.tasks.folders import read_folder, task_folders, tasks_of


def problem_of(folder: Path) -> TaskProblem:
    """Return what is wrong with a folder's only task."""
    ((_, read),) = tasks_of(folder)
    assert isinstance(read, TaskProblem)
    return read


def test_a_folder_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = written(tmp_path / "answer", {"tests/empty": None})
    (folder / "environment" / "empty").mkdir()
    found = read_folder(folder)
    assert found == entries() | {"environment/empty": found["environment/empty"]}
    assert found["environment/empty"].kind == "dir"
    assert found["tests/test.sh"].executable and not found["task.toml"].executable


def test_hidden_entries_at_the_top_are_no_part_of_a_task(tmp_path: Path) -> None:
    folder = written(tmp_path / "answer")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("x")
    (folder / "tests" / ".keep").write_text("")
    found = read_folder(folder)
    assert not any(path.startswith(".git") for path in found)
    assert "tests/.keep" in found


def test_one_task_or_a_folder_of_them(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        written(tmp_path / name)
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").write_text("x")
    assert [name for name, _ in tasks_of(tmp_path)] == ["a", "b"]
    assert [name for name, _ in tasks_of(tmp_path / "b")] == ["b"]
    link = tmp_path / "link"
    link.symlink_to("b")
    assert [name for name, _ in tasks_of(link)] == ["b"], "the user named it"


def test_a_folder_without_a_task_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, said in (
        (tmp_path, "holds no task"),
        (tmp_path / "empty", "holds no task"),
        (tmp_path / "missing", "cannot be read: No such file"),
        (Path("\0"), "is no path"),
    ):
        with pytest.raises(TaskProblem, match=said):
            task_folders(path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(TaskProblem, match="cannot be read: Not a directory"):
        task_folders(tmp_path / "file")


def test_a_forgotten_task_toml_is_named(tmp_path: Path) -> None:
    written(tmp_path / "a")
    written(tmp_path / "b", {"task.toml": None})
    (_, first), (name, second) = tasks_of(tmp_path)
    assert isinstance(first, Task) and name == "b"
    assert isinstance(second, TaskProblem) and str(second) == "task.toml: is missing"
    assert str(problem_of(tmp_path / "b")) == "task.toml: is missing"


def test_a_task_that_is_a_link_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "elsewhere" / "a")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "a").symlink_to("../elsewhere/a")
    assert "is a symlink" in str(problem_of(tmp_path / "tasks"))


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret", "../../tasks2/x"])
def test_a_link_out_of_the_task_is_refused_and_not_read(tmp_path: Path, target: str) -> None:
    folder = written(tmp_path / "answer")
    (tmp_path / "secret").write_text("s3cret")
    (folder / "tests" / "l").symlink_to(target)
    problem = problem_of(folder)
    assert problem.file == "tests/l" and "leads out of the task's folder" in str(problem)
    assert "s3cret" not in str(problem)


def test_a_link_as_a_tasks_file_is_not_followed(tmp_path: Path) -> None:
    folder = written(tmp_path / "answer", {"task.toml": None})
    (tmp_path / "task.toml").write_text("[agent]\ntimeout_sec = 1")
    (folder / "task.toml").symlink_to("../task.toml")
    assert problem_of(folder).file == "task.toml"


def test_a_file_of_5_gb_is_named_and_never_read(tmp_path: Path) -> None:
    folder = written(tmp_path / "answer")
    with (folder / "tests" / "huge.bin").open("wb") as file:
        file.truncate(5 << 30)
    problem = problem_of(folder)
    assert problem.file == "tests/huge.bin"
    assert "has 5368709120 bytes" in str(problem) and problem.mend


def test_a_file_that_grows_meanwhile_is_cut_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_FILE_BYTES", 1000)
    folder = written(tmp_path / "answer")
    grown = folder / "tests" / "grows"
    grown.write_bytes(b"x")
    opened = os.open

    def grow(name: str, flags: int, *, dir_fd: int | None = None) -> int:
        if name == "grows":
            grown.write_bytes(b"x" * 5000)
        return opened(name, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", grow)
    assert "the limit of a file" in str(problem_of(folder))


def test_what_changes_its_kind_meanwhile_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("s3cret")
    folder = written(tmp_path / "answer", {"tests/swapped": "x"})
    opened = os.open

    def swap(name: str, flags: int, *, dir_fd: int | None = None) -> int:
        if name == "swapped":
            (folder / "tests" / "swapped").unlink()
            (folder / "tests" / "swapped").symlink_to(tmp_path / "secret")
        return opened(name, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap)
    problem = problem_of(folder)
    assert problem.file == "tests/swapped" and "cannot be read" in str(problem)


def test_a_task_has_limits_of_bytes_files_and_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "answer")
    monkeypatch.setattr(limits, "MAX_ENTRIES", 5)
    assert "more than 5 files" in str(problem_of(folder))
    monkeypatch.setattr(limits, "MAX_ENTRIES", 1000)
    monkeypatch.setattr(limits, "MAX_TASK_BYTES", 100)
    assert "MiB together" in str(problem_of(folder))
    monkeypatch.undo()
    deep = folder / "tests"
    for _ in range(40):
        deep /= "d"
        deep.mkdir()
    assert "folders deep" in str(problem_of(folder))


def test_a_name_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "answer")
    (folder / "tests" / os.fsdecode(b"caf\xe9")).write_text("x")
    problem = problem_of(folder)
    assert problem.file == "tests/caf\\xe9" and "not UTF-8" in str(problem)
    other = written(tmp_path / "other")
    (other / "tests" / "l").symlink_to(os.fsdecode(b"caf\xe9"))
    assert "not UTF-8" in str(problem_of(other))
    written(tmp_path / "tasks" / os.fsdecode(b"t\xff"))
    with pytest.raises(TaskProblem, match="not UTF-8"):
        list(tasks_of(tmp_path / "tasks"))


def test_special_files_are_named_and_not_opened(tmp_path: Path) -> None:
    folder = written(tmp_path / "answer")
    os.mkfifo(folder / "tests" / "fifo")
    found: list[TaskProblem] = []
    reader = threading.Thread(target=lambda: found.append(problem_of(folder)), daemon=True)
    reader.start()
    reader.join(10)
    assert [str(one) for one in found] == ["tests/fifo: is a FIFO"]
    other = written(tmp_path / "other")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(other / "s"))
        assert str(problem_of(other)) == "s: is a socket"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "answer")
    (folder / "tests" / "test.sh").chmod(0)
    assert str(problem_of(folder)) == "tests/test.sh: cannot be read: Permission denied"
    (folder / "tests").chmod(0)
    assert problem_of(folder).file == "tests"
    (folder / "tests").chmod(0o755)


def test_no_file_descriptor_is_left_open(tmp_path: Path) -> None:
    folder = written(tmp_path / "answer")
    os.mkfifo(folder / "tests" / "zfifo")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        problem_of(folder)
        read_task("x", entries())
    assert len(list(Path("/proc/self/fd").iterdir())) == before
