"""What a run of tasks is told beside its tasks: refused or warned of before anything is sent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.task_folders import written
from trialog.cli import main
from trialog.cli.runfile import BadRunFile, load_changes, load_run_file

Check = Callable[..., tuple[int, str]]


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Check:
    """Check a folder of one task; no server is there to be asked."""
    written(tmp_path / "tasks" / "a")

    def call(*arguments: str) -> tuple[int, str]:
        folder = str(tmp_path / "tasks")
        monkeypatch.setattr(sys, "argv", ["trialog", "tasks", "check", folder, *arguments])
        with pytest.raises(SystemExit) as ended:
            main.run()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().err

    return call


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("agent: oracl", "agent: 'oracl' is no agent (did you mean oracle?)"),
        ("agent: nop\nagent_options: {a: 1}", "agent_options.a is no option of nop; it has none"),
        (
            "agent: command\nagent_options: {command: x, envs: {}}",
            "agent_options.envs is no option of command (did you mean env?); it has command and",
        ),
        ("agent: command\nagent_options: {command: 3}", "agent_options.command is to be a text"),
        ("agent: nop\nimages: {a: x.tar}", "images.a: 'x.tar' is no source of an image: tar:PATH"),
        ("agent: nop\nprovider: docker\nimages: {a: host}", "images.a is host, which is for prov"),
        ("agent: nop\ntasks: tasks", "tasks: say tasks: {path: tasks}"),
    ],
)
def test_a_run_file_is_refused_here(tmp_path: Path, more: str, said: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(more if "tasks:" in more else f"tasks: {{path: x}}\n{more}\n")
    with pytest.raises(BadRunFile) as caught:
        load_run_file(str(file))
    assert said in str(caught.value)


def test_paths_of_images_are_relative_to_what_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "tasks: {path: x}\nagent: nop\n"
        "images: {a: 'tar:./a.tar', b: 'oci:b:1', c: 'tar:/c.tar', d: host}\n"
    )
    monkeypatch.chdir("/")
    assert load_run_file(str(file), ["images.py:3.12=tar:p.tar"])["images"] == {
        "a": f"tar:{tmp_path}/a.tar",
        "b": f"oci:{tmp_path}/b:1",
        "c": "tar:/c.tar",
        "d": "host",
        "py:3.12": "tar:/p.tar",
    }
    assert load_changes(["images.a=oci:x"], {}) == {"images": {"a": "oci:/x"}}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("provider=docker", "images.x=host"), "--set: images.x is host, which is for provider"),
        (("agent=nop", "agent_options.a=1"), "--set: agent_options.a is no option of nop"),
        (("agent=oracl",), "--set: agent: 'oracl' is no agent (did you mean oracle?)"),
    ],
)
def test_what_no_run_can_have_is_bad_input(
    check: Check, settings: tuple[str, ...], said: str
) -> None:
    code, err = check(*[word for one in settings for word in ("--set", one)])
    assert code == 2 and said in err


def test_an_image_that_is_not_here_is_a_warning(check: Check, tmp_path: Path) -> None:
    name = "images.debian:bookworm-slim"
    (tmp_path / "layout").mkdir()
    code, err = check("--set", f"{name}=oci:{tmp_path}/layout:1")
    assert (code, err) == (0, "1 task: it runs\n")
    code, err = check("--set", f"{name}=tar:{tmp_path}/none.tar")
    assert code == 0
    said = f"{name}: {tmp_path}/none.tar is not on this machine; workers will look there"
    assert err.splitlines() == [said, "1 task: it runs"]


def test_check_ends_with_how_many_run(check: Check, tmp_path: Path) -> None:
    assert check("--set", "images={'debian:bookworm-slim': host}") == (0, "1 task: it runs\n")
    for name in "bcd":
        written(tmp_path / "tasks" / name)
    assert check("--set", "provider=docker") == (0, "4 tasks: all run\n")
    written(tmp_path / "tasks" / "c", {"instruction.md": ""})
    assert check("--set", "provider=docker") == (1, "1 of 4 tasks does not run\n")
    written(tmp_path / "tasks" / "d", {"instruction.md": ""})
    assert check("--set", "provider=docker") == (1, "2 of 4 tasks do not run\n")
