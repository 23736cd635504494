"""Reads task.toml: schema 1.0 to 1.4, every mistake named, every ignored key warned of. Pure."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from trialog.proto.canonical import NotCanonicalError, canonical
from trialog.proto.tasks.config import Artifact, Environment, Network, Step, TaskConfig
from trialog.proto.tasks.files import TaskProblem
from trialog.proto.tasks.legacy import CONFIG, modernised, named
from trialog.proto.tasks.variables import with_defaults

NEWEST = (1, 4)
MAX_BYTES = 1_000_000
MAX_PATH_BYTES = 4_000

# Tables for people, in which anything may stand.
_FREE = frozenset({"metadata", "task", "source"})
_NO_NUMBER = frozenset({"float_parsing", "int_parsing", "float_type", "int_type"})
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")
_ENV_NAME = re.compile(r"[^=\x00]+")
_STEP_NAME = re.compile(r"[^<>:\"/\\|?*\x00-\x1f\x7f]{1,255}")


def parse(text: bytes) -> tuple[TaskConfig, list[str]]:
    """Return the settings of a task.toml, and a warning for each key that is ignored.

    Values of ``env`` tables are their defaults already (variables.py). Raises TaskProblem, which
    names the key that is wrong.
    """
    warnings: list[str] = []
    try:
        if len(text) > MAX_BYTES:
            raise TaskProblem(CONFIG, f"is larger than {MAX_BYTES} bytes")
        table = tomllib.loads(text.decode())
        canonical({key: value for key, value in table.items() if key not in _FREE})
    except UnicodeDecodeError as error:
        raise TaskProblem(CONFIG, f"is not UTF-8 at byte {error.start}", "save it so") from None
    except NotCanonicalError as error:  # nan, a date, an integer beyond 2**53
        raise TaskProblem(CONFIG, f"holds a value that cannot be meant: {error}") from None
    except ValueError as error:  # a number of 5,000 digits is no TOMLDecodeError
        raise TaskProblem(CONFIG, f"is no TOML: {error}") from None
    except RecursionError:
        raise TaskProblem(CONFIG, "is nested too deeply") from None
    table = modernised(table, warnings)
    _check_version(table, warnings)
    try:
        config = TaskConfig.model_validate(table)
    except ValidationError as error:
        raise _first(error) from None
    config = _with_variables(config)
    _check_whole(config)
    warnings += _idle(config)
    return config, warnings


def _check_version(table: dict[str, Any], warnings: list[str]) -> None:
    given = table.setdefault("schema_version", "1.4")
    if isinstance(given, float):
        given = table["schema_version"] = repr(given)
        warnings.append(f'schema_version is a number; write it as a text: "{given}"')
    match = _VERSION.fullmatch(given) if isinstance(given, str) else None
    if match is None or int(match[1]) != NEWEST[0]:
        what = f"schema_version is {given!r}; supported are 1.0 to 1.4"
        raise TaskProblem(CONFIG, what, "bring the task to schema 1.4")
    if int(match[2]) > NEWEST[1]:
        warnings.append(f"schema_version {given} is newer than 1.4, which is what it is read as")


def _first(error: ValidationError) -> TaskProblem:
    """Return the first mistake, named as a person finds it in the file, and how many there are."""
    found = error.errors(include_url=False)
    one = found[0]
    words = one["msg"].removeprefix("Value error, ")
    words = words.replace("Input should be greater than or equal to", "must be at least")
    words = words.replace("Input should be greater than", "must be above")
    words = re.sub("a valid dictionary or instance of .*", "a table", words)
    words = (
        words.replace("valid string", "text")
        .replace("Input should be", "must be")
        .replace("Field required", "is missing")
    )
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    mend = "write a number, without quotes" if one["type"] in _NO_NUMBER else ""
    return TaskProblem(CONFIG, f"{_called(one['loc'])} {words}{more}", mend)


def _called(place: Sequence[int | str]) -> str:
    """Return a field's place as ``[steps[0].agent].timeout_sec``."""
    tables, keys = "", [part for part in place if part not in ("str", "int", "float")]
    while len(keys) > 1:
        part = keys.pop(0)
        tables += f"[{part}]" if isinstance(part, int) else f".{part}"
    last = keys[0] if keys else ""
    if isinstance(last, int):
        return f"{tables.removeprefix('.')}[{last}]"
    return named(tables.removeprefix("."), last)


def _with_variables(config: TaskConfig) -> TaskConfig:
    """Return the settings with the defaults of variables in place, everywhere."""

    def filled(environment: Environment | None) -> Environment | None:
        if environment is None:
            return None
        return environment.model_copy(update={"env": with_defaults(environment.env)})

    def graded(holder: TaskConfig | Step) -> dict[str, Any]:
        verifier = holder.verifier
        update = {
            "env": with_defaults(verifier.env),
            "environment": filled(verifier.environment),
        }
        return {"verifier": verifier.model_copy(update=update)}

    solution = config.solution.model_copy(update={"env": with_defaults(config.solution.env)})
    return config.model_copy(
        update=graded(config)
        | {"environment": filled(config.environment), "solution": solution}
        | {"steps": [step.model_copy(update=graded(step)) for step in config.steps]}
    )


def env_tables(config: TaskConfig) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield every table of variables with its name, the solution's last."""
    for place, environment in environments(config):
        yield f"{place}.env", environment.env
    yield "verifier.env", config.verifier.env
    for n, step in enumerate(config.steps):
        yield f"steps[{n}].verifier.env", step.verifier.env
    yield "solution.env", config.solution.env


def environments(config: TaskConfig) -> Iterator[tuple[str, Environment]]:
    """Yield every environment of a task with its table's name, the agent's first."""
    yield "environment", config.environment
    if config.verifier.environment is not None:
        yield "verifier.environment", config.verifier.environment
    for n, step in enumerate(config.steps):
        if step.verifier.environment is not None:
            yield f"steps[{n}].verifier.environment", step.verifier.environment


def _check_whole(config: TaskConfig) -> None:
    """Raise TaskProblem for what spans keys."""
    for place, env in env_tables(config):
        for name, value in env.items():
            if not _ENV_NAME.fullmatch(name) or "\0" in value:
                raise TaskProblem(CONFIG, f"{named(place, name)} can be no variable")
    for place, holder in (("verifier", config), *_numbered(config.steps)):
        verifier = holder.verifier
        if verifier.environment_mode == "shared" and verifier.environment is not None:
            what = f"[{place}].environment_mode is shared, and there is a [{place}.environment]"
            raise TaskProblem(CONFIG, what, "leave one of them out")
        table = "" if holder is config else f"{place.removesuffix('.verifier')}."
        for n, artifact in enumerate(holder.artifacts):
            _check_artifact(f"{table}artifacts[{n}]", artifact)
    for place, environment in environments(config):
        if environment.workdir:
            _check_path(named(place, "workdir"), environment.workdir)
    for place, table in networks(config):
        if table.allowed_hosts is not None and table.network_mode != "allowlist":
            what = f"{named(place, 'allowed_hosts')} is given without network_mode = allowlist"
            raise TaskProblem(CONFIG, what)
    _check_steps(config.steps)


def _numbered(steps: Sequence[Step]) -> list[tuple[str, Step]]:
    return [(f"steps[{n}].verifier", step) for n, step in enumerate(steps)]


def networks(config: TaskConfig) -> Iterator[tuple[str, Network]]:
    """Yield every table that may ask for a network, with its name."""
    yield from environments(config)
    yield "agent", config.agent
    yield "verifier", config.verifier
    for n, step in enumerate(config.steps):
        yield f"steps[{n}].agent", step.agent
        yield f"steps[{n}].verifier", step.verifier


def _check_path(key: str, path: str) -> None:
    """Refuse what no sandbox has, or what leads elsewhere than it says."""
    if ".." in path.split("/"):
        raise TaskProblem(CONFIG, f"{key} {path[:200]!r} must hold no '..'")
    if not path or "\0" in path:
        raise TaskProblem(CONFIG, f"{key} {path[:200]!r} can be no path")
    if len(path.encode()) > MAX_PATH_BYTES:
        raise TaskProblem(CONFIG, f"{key} is longer than {MAX_PATH_BYTES} bytes")


def _check_artifact(place: str, artifact: Artifact) -> None:
    destination = artifact.destination or ""
    _check_path(named(place, "source"), artifact.source)
    if destination:
        _check_path(named(place, "destination"), destination)
    for n, pattern in enumerate(artifact.exclude):
        if "\0" in pattern or len(pattern.encode()) > MAX_PATH_BYTES:
            raise TaskProblem(CONFIG, f"{named(place, f'exclude[{n}]')} can be no pattern")
    if "\\" in destination or destination.startswith("/"):
        what = f"artifacts: the destination {destination!r} must be relative, without '..'"
        raise TaskProblem(CONFIG, what)
    if destination.rstrip("/") == "manifest.json":
        raise TaskProblem(CONFIG, "artifacts: the destination manifest.json is the collection's")


def _check_steps(steps: Sequence[Step]) -> None:
    seen: set[str] = set()
    for n, step in enumerate(steps):
        name = step.name
        if not _STEP_NAME.fullmatch(name) or not name.strip() or name.endswith((".", " ")):
            raise TaskProblem(CONFIG, f"[steps[{n}]].name {name!r} can be no folder's name")
        key = unicodedata.normalize("NFC", name).casefold()
        if key in seen:
            raise TaskProblem(CONFIG, f"[steps[{n}]].name {name!r} is a step's before it")
        seen.add(key)


def _idle(config: TaskConfig) -> Iterator[str]:
    """Yield warnings of keys that say nothing in their place."""
    if config.multi_step_reward_strategy is not None and not config.steps:
        yield "multi_step_reward_strategy is ignored: the task has no steps"
