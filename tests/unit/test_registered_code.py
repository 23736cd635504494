"""Every piece of code that keys name is told of by the service that runs it, under its own name."""

from __future__ import annotations

import ast
from pathlib import Path

import trialog.judge.checks
import trialog.sandbox.agents
import trialog.sandbox.verifiers
import trialog.trainer.learners
from support.asked_runs import CODE_NAMES
from trialog.judge import code as judge
from trialog.sandbox import code as sandbox
from trialog.trainer import code as trainer

ROOMS = {
    sandbox: (trialog.sandbox.agents, trialog.sandbox.verifiers),
    judge: (trialog.judge.checks,),
    trainer: (trialog.trainer.learners,),
}

# What plays and grades tasks has names of its own, beside those that keys are drawn with.
TASK_CODE = ["agent:command", "agent:nop", "agent:oracle", "verifier:harbor"]
# What the grade of a task depends on, beside its tests.
GRADING = {"artifacts", "grading", "rewards", "verifying"}


def test_every_name_that_keys_hold_is_told_of_by_one_service() -> None:
    told = [name for service in ROOMS for name in service.versions()]
    assert sorted(told) == sorted([*CODE_NAMES, *TASK_CODE])


def test_no_two_pieces_are_one_version() -> None:
    versions = [version for service in ROOMS for version in service.versions().values()]
    assert len(set(versions)) == len(versions)
    assert all(len(version) == 64 for version in versions)


def test_every_file_of_such_code_is_in_a_version() -> None:
    """A file that is in none could be changed without anybody's noticing."""
    for service, rooms in ROOMS.items():
        text = Path(str(service.__file__)).read_text()
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        named = {
            argument.id
            for call in calls
            if isinstance(call.func, ast.Name) and call.func.id == "source_version"
            for argument in call.args
            if isinstance(argument, ast.Name)
        }
        files = {
            path.stem
            for room in rooms
            for path in Path(str(room.__file__)).parent.glob("*.py")
            if path.stem != "__init__"
        }
        assert named == files | (GRADING if service is sandbox else set())
