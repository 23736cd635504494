"""What docs/ shows of run files and tasks works as it is written there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from trialog.cli import main

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(name: str, kind: str) -> list[str]:
    """Return the blocks of a kind in a document."""
    text = (ROOT / "docs" / name).read_text()
    return [body for found, body in BLOCK.findall(text) if found == kind]


def check(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["trialog", "tasks", "check", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_the_whole_task_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (script,) = [text for text in blocks("tasks.md", "sh") if "<<'EOF'" in text]
    makes = "".join(line for line in script.splitlines(True) if not line.startswith("trialog "))
    subprocess.run(["sh", "-ec", makes], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert check("my-tasks", "-f", "my-run.yaml", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().err == "1 task: it runs\n"


def test_the_run_files_of_agents_can_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples" / "tasks", tmp_path / "examples" / "tasks")
    monkeypatch.chdir(tmp_path)
    found = blocks("agents.md", "yaml")
    assert {yaml.safe_load(text)["agent"] for text in found} == {
        "command",
        "import:my_agents.looped:Looped",
    }
    for text in found:
        Path("run.yaml").write_text(text)
        assert check("examples/tasks", "-f", "run.yaml", monkeypatch=monkeypatch) == 0
        assert capsys.readouterr().err == "16 tasks: all run\n"
