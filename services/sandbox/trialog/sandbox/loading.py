"""Which agent a name stands for on tasks, made with its options: our own, or a class of yours."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any

from trialog.sandbox.agent import Agent
from trialog.sandbox.agents.command import Command
from trialog.sandbox.agents.nop import Nop
from trialog.sandbox.agents.oracle import Oracle
from trialog.sandbox.errors import AgentUnavailableError
from trialog.sandbox.trajectory.clip import clip

OWN: Mapping[str, Callable[[Mapping[str, Any]], Agent]] = {
    "oracle": Oracle,
    "nop": Nop,
    "command": Command,
}
_IMPORT = "import:"
_REASON = 1_000


async def load(name: str, options: Mapping[str, Any], allowed: Sequence[str]) -> Agent:
    """Return an agent made anew. ``allowed`` are patterns of the modules that may be imported.

    Raises AgentUnavailableError: not known, not allowed, not to be imported, no agent, or its
    options are refused.
    """
    if name in OWN:
        return _made(name, OWN[name], options)
    if not name.startswith(_IMPORT):
        known = ", ".join([*OWN, "import:MODULE:CLASS"])
        raise AgentUnavailableError(f"{name!r} is no agent for tasks: they are {known}")
    module_name, _, class_name = name.removeprefix(_IMPORT).partition(":")
    if not any(fnmatchcase(module_name, pattern) for pattern in allowed):
        raise AgentUnavailableError(
            f"this worker may not import {module_name}: TRIALOG_AGENT_MODULES allows "
            f"{', '.join(allowed) or 'no module'}; name it there and restart the worker"
        )
    # A module may take seconds to import, and others' work goes on meanwhile.
    module = await asyncio.to_thread(_imported, module_name)
    with _their_code(f"making {name} with its options"):
        return _made(name, _class_of(module, class_name), options)


def _imported(name: str) -> ModuleType:
    with _their_code(f"importing {name}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name + ".").startswith(error.name + "."):
                raise AgentUnavailableError(
                    f"this worker finds no module {error.name}: install it into the worker's "
                    "environment, or name its folder in the worker's PYTHONPATH"
                ) from error
            raise


@contextmanager
def _their_code(doing: str) -> Generator[None]:
    """Somebody's own code runs here and awaits nothing: whatever it raises is a reason, also what
    would end this process or look like a cancellation of ours."""
    try:
        yield
    except AgentUnavailableError:
        raise
    except BaseException as error:
        raise AgentUnavailableError(_failed(doing, error)) from error


def _class_of(module: ModuleType, name: str) -> type[Any]:
    found = getattr(module, name, None)
    if found is None:
        classes = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__
        ]
        known = ", ".join(sorted(classes)[:10]) or "none"
        raise AgentUnavailableError(f"{module.__name__} has no class {name}; it has {known}")
    if not isinstance(found, type):
        raise AgentUnavailableError(f"{module.__name__}.{name} is no class")
    # Before it is made: a name leads to any class, and only an agent's may be made with options.
    if not inspect.iscoroutinefunction(getattr(found, "run", None)):
        raise AgentUnavailableError(
            f"{module.__name__}.{name} is no agent: it has no `async def run(self, trial)`"
        )
    return found


def _made(name: str, make: Callable[[Mapping[str, Any]], Any], options: Mapping[str, Any]) -> Agent:
    try:
        agent = make(dict(options))
    except ValueError as error:
        raise AgentUnavailableError(clip(f"agent_options of {name}: {error}", _REASON)) from error
    for attribute in ("name", "version"):
        value = getattr(agent, attribute, None)
        if not isinstance(value, str) or not 0 < len(value) <= 100:
            raise AgentUnavailableError(f"{name} has no {attribute} of 1 to 100 characters")
    return agent


def _failed(doing: str, error: BaseException) -> str:
    return clip(f"{doing} failed: {type(error).__name__}: {error}", _REASON)
