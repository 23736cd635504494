"""Who may import whom, and what the pure modules may not touch (import-linter holds the layers)."""

from __future__ import annotations

import importlib.metadata
import re
import sys

import pytest
from architecture.sources import MEMBERS, SERVICES, Module, module, modules, project

PURE = [
    *modules("proto"),
    module("trialog.driver.decide"),
    module("trialog.driver.state"),
    module("trialog.driver.closing"),
    module("trialog.driver.lineage"),
]
# Clocks, chance, input and output, and what brings them along.
_IMPURE = {
    "asyncio",
    "datetime",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "secrets",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
}
_ALLOWED = {"msgspec", "pydantic"}
# FastAPI's own types are starlette's.
_BROUGHT_BY = {"starlette": "fastapi", "pydantic_core": "pydantic"}


@pytest.mark.parametrize("service", SERVICES)
def test_services_never_import_one_another(service: str) -> None:
    others = tuple(f"trialog.{other}" for other in (*SERVICES, "cli", "client") if other != service)
    for each in modules(f"services/{service}"):
        for name in each.imports():
            assert not _is_within(name, others), f"{each.where} imports {name}"


def test_the_command_imports_no_service_and_the_spine_none_of_its_users() -> None:
    users = tuple(f"trialog.{name}" for name in SERVICES)
    for member in ("cli", "spine", "proto"):
        above = users if member == "cli" else (*users, "trialog.cli", "trialog.client")
        for each in modules(member):
            for name in each.imports():
                assert not _is_within(name, above), f"{each.where} imports {name}"


def _is_within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


@pytest.mark.parametrize("pure", PURE, ids=lambda each: each.name)
def test_pure_modules_touch_no_clock_chance_file_or_spine(pure: Module) -> None:
    for name in pure.imports():
        top = name.partition(".")[0]
        assert top not in _IMPURE, f"{pure.where} imports {name}"
        assert top in sys.stdlib_module_names | _ALLOWED | {"trialog"}, name
        if top == "trialog":
            assert _is_within(name, ("trialog.proto", *(each.name for each in PURE))), name
        if top == "random":
            # A generator from a given seed draws the same anywhere: seeds.py makes them.
            assert pure.name == "trialog.proto.seeds"
    for call in (r"\bopen\(", r"\buuid[14]\(", r"\binput\(", r"\bprint\("):
        assert not re.search(call, pure.text), f"{pure.where} calls {call}"


def test_only_the_seeds_draw() -> None:
    text = module("trialog.proto.seeds").text
    assert set(re.findall(r"random\.(\w+)", text)) <= {"Random"}


@pytest.mark.parametrize("member", MEMBERS)
def test_what_a_member_imports_it_declares(member: str) -> None:
    """Each installs and starts alone: the driver without Ray, the judge without bubblewrap."""
    declared = _declared(member)
    providers = importlib.metadata.packages_distributions()
    for each in modules(member):
        for name in set(each.imports()):
            top = name.partition(".")[0]
            if top in sys.stdlib_module_names or top == "trialog":
                continue
            top = _BROUGHT_BY.get(top, top)
            dists = {_plain(dist) for dist in providers.get(top, [])}
            assert dists & declared, f"{each.where} imports {name}, which {member} does not declare"


def _declared(member: str) -> set[str]:
    """Return what a member and the members it depends on declare, extras with it."""
    about = project(member)["project"]
    texts = [*about.get("dependencies", [])]
    for extra in about.get("optional-dependencies", {}).values():
        texts += extra
    names = {_plain(re.split(r"[\s\[<>=!~;]", text)[0]) for text in texts}
    for other in MEMBERS:
        if other != member and _plain(project(other)["project"]["name"]) in names:
            names |= _declared(other)
    return names


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_heavy_parts_stay_where_they_belong() -> None:
    heavy = {"ray": "services/trainer", "fastapi": "services/driver", "uvicorn": "services/driver"}
    for name, home in heavy.items():
        for member in MEMBERS:
            users = {
                each.where
                for each in modules(member)
                if any(_is_within(imported, (name,)) for imported in each.imports())
            }
            assert member == home or not users or "standin" in str(users), (name, users)
