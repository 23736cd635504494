"""Every event type is whole: slot, reader, words in the docs. All SQL is in its places."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from architecture.sources import MEMBERS, ROOT, Module, modules
from trialog.proto import events as ev
from trialog.proto import work

_STATEMENT = re.compile(
    r"^\s*(select\s.+(\sfrom\s|\()|insert\s+into\s|update\s+\w+\s+set\s|delete\s+from\s"
    r"|with\s+\w+\s+as\s*\(|(create|alter|drop)\s+(or\s+replace\s+)?"
    r"(table|index|function|trigger|role|view|schema)\s|grant\s|revoke\s|truncate\s)",
    re.IGNORECASE | re.DOTALL,
)
# Roles and the migrations' own lock: they come before there is a schema to ask.
_MAY_SPEAK_SQL = ("queries.py", "migrate.py")


@pytest.mark.parametrize("name", ev.TYPES)
def test_every_event_type_is_documented(name: str) -> None:
    assert ev.TYPES[name].__doc__, f"{name} says nothing of itself"
    text = (ROOT / "docs" / "event-log.md").read_text()
    assert re.search(rf"\b{name}\b", text), f"docs/event-log.md does not know {name}"


def test_every_event_type_has_a_version_a_reader_and_an_end_that_exists() -> None:
    assert set(ev.SCHEMA_VERSION) == set(ev.TYPES)
    assert set(ev._decoders) == set(ev.TYPES)
    assert set(ev.TYPES) >= ev.ENDS | ev.RUN_ENDS
    for cls in ev.TYPES.values():
        assert cls.__struct_config__.frozen
        assert cls.__struct_config__.omit_defaults


def test_the_states_of_a_run_follow_the_same_events_in_sql_and_memory() -> None:
    sql = (ROOT / "spine/trialog/spine/migrations/versions/v0001/2_commit_batch.sql").read_text()
    moving = {"RunRequested", "RunPaused", "RunResumed", *ev.RUN_ENDS}
    named = set(re.findall(r"'(Run[A-Z]\w+)'", sql))
    assert named == moving


def test_the_kinds_of_work_are_those_that_somebody_handles() -> None:
    handled: set[str] = set()
    for service in ("sandbox", "judge", "trainer"):
        text = (ROOT / f"services/{service}/trialog/{service}/main.py").read_text()
        handled |= {kind for kind in work.KINDS if f'"{kind}"' in text}
    assert handled == set(work.KINDS)


def _texts(module: Module) -> list[tuple[int, str]]:
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        (node.lineno, node.value)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]


def test_sql_stands_in_the_queries_and_the_migrations_only() -> None:
    strays = {
        f"{module.where}:{line} {text.strip()[:50]}"
        for module in modules()
        if module.path.name not in _MAY_SPEAK_SQL and "/migrations/" not in module.where
        for line, text in _texts(module)
        if _STATEMENT.match(text)
    }
    assert strays == set()


@pytest.mark.parametrize("member", MEMBERS)
def test_every_query_is_used(member: str) -> None:
    for module in modules(member):
        if module.path.name != "queries.py":
            continue
        names = [
            target.id
            for node in module.tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name) and not target.id.startswith("_")
        ]
        elsewhere = "\n".join(m.text for m in modules() if m.path != module.path)
        tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
        unused = [
            name
            for name in names
            if not re.search(rf"\b{name}\b", elsewhere + tests)
            and len(re.findall(rf"\b{name}\b", module.text)) == 1
        ]
        assert unused == [], f"{module.where}: delete what no longer serves"


def test_no_sql_is_put_together_from_values() -> None:
    """Values are parameters. Migrate's role name is checked to be a plain one first."""
    for module in modules():
        if module.path.name == "migrate.py":
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.JoinedStr):
                continue
            first = node.values[0] if node.values else None
            text = first.value if isinstance(first, ast.Constant) else ""
            assert not _STATEMENT.match(str(text)), f"{module.where}:{node.lineno}"


def _sql_functions(folder: Path) -> set[str]:
    text = "\n".join(path.read_text() for path in sorted(folder.rglob("*.sql")))
    return set(re.findall(r"create function (\w+)", text))


def test_every_function_of_the_database_is_called() -> None:
    functions = _sql_functions(ROOT / "spine/trialog/spine/migrations")
    sql = "\n".join(
        path.read_text() for path in (ROOT / "spine/trialog/spine/migrations").rglob("*.sql")
    )
    python = "\n".join(m.text for m in modules() if m.path.name == "queries.py")
    for name in functions - {"refuse_change"}:
        calls = len(re.findall(rf"\b{name}\b", sql)) - 1 + len(re.findall(rf"\b{name}\b", python))
        assert calls > 0, f"nobody calls {name}"
