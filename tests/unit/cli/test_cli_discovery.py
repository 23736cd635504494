"""The files by which a command finds the running stack."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trialog.cli import discovery
from trialog.cli.discovery import RunningStack


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "trialog"


def here(port: int, pid: int | None = None) -> RunningStack:
    return RunningStack(f"http://127.0.0.1:{port}", pid or os.getpid(), "/data")


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_what_is_announced_is_found_until_withdrawn():
    path = discovery.announce(here(1))
    assert discovery.running() == [here(1)]
    discovery.withdraw(path)
    assert discovery.running() == []


def test_the_newest_that_lives_is_found_first(runtime: Path):
    living, parent = here(1), here(3, os.getppid())
    discovery.announce(living)
    dead = discovery.announce(here(2, dead_pid()))
    older = discovery.announce(parent)
    assert dead is not None and older is not None
    os.utime(dead, (9e9, 9e9))
    os.utime(older, (1, 1))
    assert discovery.running() == [living, parent]
    assert not dead.exists()
    assert older.exists()


def test_a_file_whose_pid_came_to_be_anothers_is_removed():
    path = discovery.announce(here(1))
    assert path is not None
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told | {"started": "1"}))
    assert discovery.running() == []
    assert not path.exists()


def test_a_zombie_is_no_stack():
    child = subprocess.Popen(["sleep", "600"])
    path = discovery.announce(here(1, child.pid))
    assert path is not None and json.loads(path.read_text())["started"]
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert discovery.running() == []
    child.wait()


def test_a_broken_file_is_no_stack(runtime: Path):
    runtime.mkdir(mode=0o700)
    (runtime / "up-1.json").write_text("{")
    (runtime / "up-2.json").write_text('{"url": "x"}')
    assert discovery.running() == []


def test_a_folder_that_others_may_write_is_not_trusted(runtime: Path):
    runtime.mkdir()
    runtime.chmod(0o777)
    assert discovery.announce(here(1)) is None
    assert discovery.running() == []


def test_a_link_is_not_trusted(runtime: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    runtime.symlink_to(tmp_path / "elsewhere")
    assert discovery.announce(here(1)) is None


def test_without_a_runtime_folder_the_temporary_one_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert discovery.folder() == tmp_path / f"trialog-{os.getuid()}"
