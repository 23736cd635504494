"""An agent by its name: our own, or a class of yours, and what is said of one that is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trialog.sandbox.agents.command import Command
from trialog.sandbox.agents.nop import Nop
from trialog.sandbox.agents.oracle import Oracle
from trialog.sandbox.errors import AgentUnavailableError
from trialog.sandbox.loading import load
from trialog.sandbox.settings import SandboxSettings

MODULE = """
class Good:
    name, version = "good", "2"

    def __init__(self, options):
        if "size" not in options:
            raise ValueError("size is missing")
        self.size = options["size"]

    async def run(self, trial):
        trial.log.message("agent", "hello")


class Nameless(Good):
    name = ""


class Unversioned(Good):
    version = None


class Broken(Good):
    def __init__(self, options):
        raise KeyError("size")


class Exits(Good):
    def __init__(self, options):
        raise SystemExit(3)


class Interrupts(Good):
    def __init__(self, options):
        raise KeyboardInterrupt


class Cancels(Good):
    def __init__(self, options):
        import asyncio

        raise asyncio.CancelledError


class ExitsLater(Good):
    @property
    def version(self):
        raise SystemExit(4)


class Blocking:
    name, version = "blocking", "1"

    def __init__(self, options):
        raise AssertionError("made before it was looked at")

    def run(self, trial):
        pass


number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that modules are found in, forgotten afterwards."""
    (tmp_path / "my_agents").mkdir()
    (tmp_path / "my_agents" / "__init__.py").write_text("")
    (tmp_path / "my_agents" / "good.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [each for each in sys.modules if each.split(".")[0] == "my_agents"]:
        del sys.modules[name]


async def refusal(name: str, options: dict[str, Any] | None = None, allowed: str = "*") -> str:
    with pytest.raises(AgentUnavailableError) as caught:
        await load(name, options or {}, (allowed,))
    assert caught.value.failure == "agent"
    return str(caught.value)


async def test_our_own_are_known_by_name_and_need_no_leave() -> None:
    assert isinstance(await load("oracle", {}, ()), Oracle)
    assert isinstance(await load("nop", {}, ()), Nop)
    assert isinstance(await load("command", {"command": "true"}, ()), Command)


@pytest.mark.parametrize("name", ["policy", "noop", "nothing"])
async def test_an_agent_of_the_reference_world_plays_no_task(name: str) -> None:
    assert await refusal(name) == (
        f"{name!r} is no agent for tasks: they are oracle, nop, command, import:MODULE:CLASS"
    )


@pytest.mark.parametrize("name", ["oracle", "nop"])
async def test_an_option_that_nobody_reads_is_refused(name: str) -> None:
    said = await refusal(name, {"colour": "red"})
    assert said == f"agent_options of {name}: colour is no option of {name}; it has none"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "command says which program agent command runs"),
        ({"command": " "}, "command is to be a text"),
        ({"command": []}, "command is to be a text"),
        ({"command": ["", "a"]}, "command is to be a text"),
        ({"command": ["a", 1]}, "command is to be a text"),
        ({"command": "a\0b"}, "command has a NUL"),
        ({"command": ["a", "b\0"]}, "command has a NUL"),
        ({"command": "a", "env": ["A"]}, "env is to be variables by name"),
        ({"command": "a", "env": {"A": 1}}, "env is to be variables by name"),
        ({"command": "a", "env": {"A=B": "1"}}, "env is to be variables by name"),
        ({"command": "a", "env": {"A": "\0"}}, "env has a NUL"),
        ({"command": "a", "shell": "zsh"}, "shell is no option of command"),
    ],
)
async def test_options_of_command_that_cannot_be_meant(
    options: dict[str, Any], reason: str
) -> None:
    refused = await refusal("command", options)
    assert refused.startswith("agent_options of command: ")
    assert reason in refused


@pytest.mark.usefixtures("folder")
async def test_a_class_of_yours_is_made_anew_with_the_options() -> None:
    one = await load("import:my_agents.good:Good", {"size": 3}, ("my_agents.*",))
    other = await load("import:my_agents.good:Good", {"size": 4}, ("other", "my_agents.good"))
    assert (one.name, one.version) == ("good", "2")
    assert (vars(one), vars(other)) == ({"size": 3}, {"size": 4})


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("allowed", [(), ("my_agents",), ("other.*",), ("MY_AGENTS.*",)])
async def test_a_module_that_is_not_allowed_is_never_imported(allowed: tuple[str, ...]) -> None:
    with pytest.raises(AgentUnavailableError, match="TRIALOG_AGENT_MODULES") as caught:
        await load("import:my_agents.good:Good", {"size": 3}, allowed)
    assert (", ".join(allowed) or "no module") in str(caught.value)
    assert "my_agents" not in sys.modules


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("missing", ["nowhere_at_all", "my_agents.other", "my_agents.good.deeper"])
async def test_a_module_that_is_not_there(missing: str) -> None:
    refused = await refusal(f"import:{missing}:Good")
    assert "PYTHONPATH" in refused or "is not a package" in refused


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import not_installed_here", "ModuleNotFoundError: No module named 'not_installed_here'"),
        ("def (", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise RuntimeError('no key')", "RuntimeError: no key"),
    ],
)
async def test_a_module_that_cannot_be_imported(folder: Path, text: str, reason: str) -> None:
    (folder / "my_agents" / "bad.py").write_text(text)
    refused = await refusal("import:my_agents.bad:Good")
    assert refused.startswith("importing my_agents.bad failed: ")
    assert reason in refused


async def test_a_module_that_comes_later_is_found(folder: Path) -> None:
    await refusal("import:my_agents.late:Good")
    (folder / "my_agents" / "late.py").write_text(MODULE)
    assert (await load("import:my_agents.late:Good", {"size": 1}, ("*",))).name == "good"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Goood", "has no class Goood; it has Blocking, Broken, Cancels, Exits, ExitsLater, Good"),
        ("number", "my_agents.good.number is no class"),
        ("Blocking", "no `async def run(self, trial)`"),
        ("Nameless", "has no name of 1 to 100 characters"),
        ("Unversioned", "has no version of 1 to 100 characters"),
        ("Broken", "failed: KeyError: 'size'"),
    ],
)
async def test_a_class_that_is_no_agent(name: str, reason: str) -> None:
    assert reason in await refusal(f"import:my_agents.good:{name}", {"size": 3})


@pytest.mark.usefixtures("folder")
async def test_options_that_the_class_refuses() -> None:
    refused = await refusal("import:my_agents.good:Good")
    assert refused == "agent_options of import:my_agents.good:Good: size is missing"


async def test_a_class_that_is_no_agent_is_not_even_made(tmp_path: Path) -> None:
    """Popen takes a dict for a command line: any class of any module can be named."""
    touched = tmp_path / "touched"
    refused = await refusal("import:subprocess:Popen", {"touch": "", str(touched): ""})
    assert "is no agent" in refused
    assert not touched.exists()


@pytest.mark.parametrize(
    ("given", "patterns"),
    [(None, ()), ("*", ("*",)), (" a.*, b ,", ("a.*", "b"))],
)
def test_the_worker_is_told_which_modules(
    monkeypatch: pytest.MonkeyPatch, given: str | None, patterns: tuple[str, ...]
) -> None:
    needed = {"DATABASE_URL": "postgres://x", "NATS_URL": "nats://x", "BLOB_DIR": "/b"}
    for name, value in {**needed, "SANDBOX_DIR": "/s"}.items():
        monkeypatch.setenv(f"TRIALOG_{name}", value)
    monkeypatch.delenv("TRIALOG_AGENT_MODULES", raising=False)
    if given is not None:
        monkeypatch.setenv("TRIALOG_AGENT_MODULES", given)
    assert SandboxSettings.from_environment().agent_modules == patterns


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Exits", "SystemExit: 3"),
        ("Interrupts", "KeyboardInterrupt: "),
        ("Cancels", "CancelledError: "),
        ("ExitsLater", "SystemExit: 4"),
    ],
)
@pytest.mark.usefixtures("folder")
async def test_a_class_that_would_end_the_worker(name: str, reason: str) -> None:
    said = await refusal(f"import:my_agents.good:{name}", {"size": 1})
    assert said == f"making import:my_agents.good:{name} with its options failed: {reason}"


async def test_a_module_that_would_end_the_worker(folder: Path) -> None:
    (folder / "my_agents" / "stops.py").write_text("raise KeyboardInterrupt('no')")
    said = await refusal("import:my_agents.stops:Agent")
    assert said == "importing my_agents.stops failed: KeyboardInterrupt: no"
