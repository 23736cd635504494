"""What the architecture tests look at: our modules, their syntax trees and what they import."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MEMBERS = (
    "proto",
    "spine",
    "services/driver",
    "services/sandbox",
    "services/judge",
    "services/trainer",
    "cli",
)
SERVICES = ("driver", "sandbox", "judge", "trainer")


@dataclass(frozen=True)
class Module:
    """A Python file of ours; ``name`` is how it is imported."""

    path: Path
    member: str
    name: str

    @functools.cached_property
    def text(self) -> str:
        """Its source."""
        return self.path.read_text()

    @functools.cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @property
    def where(self) -> str:
        """Its path below the repository's root."""
        return str(self.path.relative_to(ROOT))

    def imports(self) -> Iterator[str]:
        """Yield the full name of every module that it imports, wherever in the file."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Yield every function."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


@functools.cache
def modules(member: str | None = None) -> tuple[Module, ...]:
    """Return the modules that ship: of one member, or all."""
    found: list[Module] = []
    for each in MEMBERS if member is None else (member,):
        base = ROOT / each
        for path in sorted(base.glob("trialog/**/*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append(Module(path, each, name))
    return tuple(found)


@functools.cache
def module(name: str) -> Module:
    """Return one module by its import name."""
    (found,) = (each for each in modules() if each.name == name)
    return found


@functools.cache
def project(member: str) -> dict[str, Any]:
    """Return a member's pyproject."""
    return tomllib.loads((ROOT / member / "pyproject.toml").read_text())


@functools.cache
def scripts() -> tuple[Path, ...]:
    """Return every Python file of the repository, tests and benchmarks with it."""
    folders = (*MEMBERS, "tests", "benchmarks", "examples", "deploy")
    return tuple(
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    )
