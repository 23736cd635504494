"""Spellings of earlier schemas, and keys that nobody reads: taken out before the model. Pure.

Schema 1.0 has ``version`` for ``schema_version``, and in an environment ``memory = "2G"`` for
``memory_mb``, ``storage`` for ``storage_mb`` and ``allow_internet`` for ``network_mode``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

from pydantic import BaseModel

from trialog.proto.spelling import hint
from trialog.proto.tasks import config
from trialog.proto.tasks.files import TaskProblem

CONFIG = "task.toml"
Table = dict[str, Any]

_SIZE = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([KMG])\s*", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}
_DESCRIBED = frozenset({"name", "version", "description", "authors", "keywords"})
# Keys that the format has and no sandbox of ours acts on, with what that means.
_IDLE = {
    "mcp_servers": "no MCP server is started or offered to the agent",
    "skills_dir": "no skills are given to the agent",
    "gpu_types": "there are no GPUs",
}


def modernised(given: Table, warnings: list[str]) -> Table:
    """Return a task.toml's table in the spelling of schema 1.4, without what nobody reads.

    A warning is added for each key that is ignored. Raises TaskProblem.
    """
    table = dict(given)
    if "version" in table:
        table.setdefault("schema_version", table["version"])
        del table["version"]
    table = _kept(table, config.TaskConfig, "", warnings)
    _check_described(table, warnings)
    return table


def _kept(table: Table, model: type[BaseModel], place: str, warnings: list[str]) -> Table:
    """Return a table with the keys of its model, and those below it likewise."""
    table = dict(table)
    if model is config.Environment:
        _modernise_environment(table, place, warnings)
    kept: Table = {}
    for key, value in table.items():
        if key not in model.model_fields:
            warnings.append(_unknown(named(place, key), key, model.model_fields))
        elif key in _IDLE and value:
            warnings.append(f"{named(place, key)} is ignored: {_IDLE[key]}")
        elif key not in _IDLE:
            kept[key] = _below(value, model, key, place, warnings)
    return kept


def _below(value: Any, model: type[BaseModel], key: str, place: str, warnings: list[str]) -> Any:
    inner = next(_models(model.model_fields[key].annotation), None)
    path = f"{place}.{key}" if place else key
    if inner is None:
        return value
    if isinstance(value, dict):
        return _kept(cast("Table", value), inner, path, warnings)
    if isinstance(value, list):
        return [
            _kept(cast("Table", one), inner, f"{path}[{n}]", warnings)
            if isinstance(one, dict)
            else one
            for n, one in enumerate(cast("list[Any]", value))
        ]
    return value


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models(argument)


def named(place: str, key: str | int = "") -> str:
    """Return how a key is called in messages: ``[agent].timeout_sec``."""
    return f"[{place}].{key}" if place and key else f"[{place}]" if place else str(key)


def _modernise_environment(table: Table, place: str, warnings: list[str]) -> None:
    for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
        if old in table:
            _take_size(table, place, old, new, warnings)
    allowed = table.pop("allow_internet", None)
    if allowed is not None and not isinstance(allowed, bool):
        raise TaskProblem(CONFIG, f"{named(place, 'allow_internet')} must be true or false")
    if allowed is not None and not {"network_mode", "allowed_hosts"} & set(table):
        table["network_mode"] = "public" if allowed else "no-network"
    if isinstance(table.get("os"), str):
        table["os"] = table["os"].lower()


def _take_size(table: Table, place: str, old: str, new: str, warnings: list[str]) -> None:
    value = table.pop(old)
    if not isinstance(value, str):
        what = f'the format reads only texts such as "2G" there; write {new}'
        warnings.append(f"{named(place, old)} is ignored: {what}")
        return
    match = _SIZE.fullmatch(value)
    if match is None:
        what = f'{named(place, old)} must be a size such as "2G" or "512M", not {value[:40]!r}'
        raise TaskProblem(CONFIG, what, f"write {new} = 2048, in MiB")
    mib = int(float(match[1]) * _MIB[match[2].upper()])
    if table.get(new, mib) != mib:
        what = f"{named(place, old)} says {mib} MiB and {named(place, new)} {table[new]}"
        raise TaskProblem(CONFIG, what, f"leave {old} out")
    table[new] = mib


def _check_described(table: Table, warnings: list[str]) -> None:
    task = table.get("task")
    if isinstance(task, dict):
        for key in sorted(set(cast("Table", task)) - _DESCRIBED):
            warnings.append(_unknown(named("task", key), key, _DESCRIBED))


def _unknown(place: str, key: str, known: Iterable[str]) -> str:
    return f"{place} is ignored: no such key is known{hint(key, sorted(known))}"
