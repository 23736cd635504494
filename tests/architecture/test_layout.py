"""The repository's layout: one namespace, services of one anatomy, files of a size."""

from __future__ import annotations

import re
import tokenize
from pathlib import Path

import pytest
from architecture.sources import MEMBERS, ROOT, SERVICES, modules, project, scripts

_MOST_LINES, _MOST_FUNCTION_LINES = 400, 70
_READS_ENVIRONMENT = re.compile(r"\bos\.(environ(\.get\(|\[)|getenv\b)")
_VAGUE = re.compile(r"(^|_)(utils?|common|helpers?|managers?|misc)(_|$)")


def test_trialog_is_a_namespace_that_no_distribution_owns() -> None:
    for member in MEMBERS:
        assert (ROOT / member / "trialog").is_dir()
        for folder in (ROOT / member, ROOT / member / "trialog"):
            assert not (folder / "__init__.py").exists(), f"{folder} must stay a namespace"
    # `import proto` at the root would shadow proto-plus, which Ray's dependencies bring.
    assert not (ROOT / "services" / "__init__.py").exists()


@pytest.mark.parametrize("member", MEMBERS)
def test_every_package_ships_its_types_and_is_built_alike(member: str) -> None:
    packages = [path for path in (ROOT / member / "trialog").iterdir() if path.is_dir()]
    packages = [path for path in packages if not path.name.startswith("_")]
    assert packages
    for package in packages:
        assert (package / "__init__.py").exists(), package
        assert (package / "py.typed").exists(), package
    assert project(member)["build-system"]["build-backend"] == "uv_build"


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_has_the_same_anatomy(service: str) -> None:
    """Learning one teaches all: DESIGN's layout."""
    home = ROOT / "services" / service / "trialog" / service
    for name in ("__main__.py", "main.py", "settings.py"):
        assert (home / name).exists(), f"{service} has no {name}"
    assert (home / "handlers.py").exists() or (home / "decide.py").exists()


@pytest.mark.parametrize("service", SERVICES)
def test_only_the_composition_root_reads_settings_and_environment(service: str) -> None:
    allowed = {f"trialog.{service}.main", f"trialog.{service}.settings"}
    for module in modules(f"services/{service}"):
        if module.name in allowed or f".{service}.standin" in module.name:
            continue
        assert f"trialog.{service}.settings" not in set(module.imports()), module.where
        assert not _READS_ENVIRONMENT.search(module.text), module.where


@pytest.mark.parametrize("path", scripts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_too_long_to_read(path: Path) -> None:
    with tokenize.open(path) as file:
        lines = sum(1 for _ in file)
    assert lines <= _MOST_LINES, f"{lines} lines: split it"


def test_no_function_is_too_long_to_read() -> None:
    long = {
        f"{module.where}:{function.lineno} {function.name}"
        for module in modules()
        for function in module.functions()
        if (function.end_lineno or 0) - function.lineno + 1 > _MOST_FUNCTION_LINES
    }
    assert long == set()


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = {
        str(path.relative_to(ROOT))
        for path in scripts()
        if any(_VAGUE.search(part) for part in (*path.parent.relative_to(ROOT).parts, path.stem))
    }
    assert vague == set()
