"""Run files: YAML with duplicates refused, settings put over it, checked against RunSpec.

Other files of settings, such as rubrics, are read with the same care (settings_of, problems_of).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import BaseModel, ValidationError

from trialog.cli.exits import BadInput
from trialog.proto.images import rooted
from trialog.proto.rubric import parse_reference
from trialog.proto.runspec import RunSpec
from trialog.proto.spelling import meant
from trialog.proto.tasks.defaults import TasksRefusedError, is_of_tasks, preliminary

MAX_BYTES = 1_000_000
# Below these keys a name may itself hold dots, so that the rest of a path is one name.
_FREE_NAMES = ("labels", "faults.straggler", "images")


class BadRunFile(BadInput):
    """A file that cannot be meant: one line for each thing that is wrong, with its field."""

    def __init__(self, source: str, problems: list[str]) -> None:
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))
        self.problems = problems


# What YAML's constructors let out for a text that does not fit its tag, such as `!!bool zz`.
_UNFIT = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, except that a key may be given once and every error has its place."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Build a value; raises ConstructorError where it does not fit its tag."""
        try:
            return super().construct_object(node, deep)  # pyright: ignore[reportUnknownMemberType]
        except _UNFIT:  # 2026-13-99 is a date to YAML
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"holds a value that YAML cannot read as {kind}", node.start_mark
            ) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping; raises ConstructorError at a key that was given before."""
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} is given twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def load_run_file(path: str, settings: Iterable[str] = ()) -> dict[str, Any]:
    """Return the body of POST /runs from a file (``-`` is standard input) and KEY=VALUE settings.

    Raises BadRunFile, which names every field that is wrong.
    """
    source, data = settings_of(path, "settings such as n_steps: 3")
    _root_paths(data, Path() if path == "-" else Path(path).parent)
    for setting in settings:
        _put(data, setting)
    _root_paths(data, Path())
    named = _named_rubric(source, data)
    spec = _validated(source, data | dict.fromkeys(named, "v1"))
    found = spec.model_dump(mode="json", exclude_unset=True)
    return {key: value for key, value in found.items() if key in data} | named


def _validated(source: str, data: dict[str, Any]) -> RunSpec:
    """Return settings as a RunSpec; of tasks, the server knows how many there are."""
    try:
        return RunSpec.model_validate(preliminary(data) if is_of_tasks(data) else data)
    except TasksRefusedError as error:
        problems = [f"{field}: {message}" for field, message in error.errors]
        raise BadRunFile(source, problems) from None
    except ValidationError as error:
        raise BadRunFile(source, problems_of(error, RunSpec)) from None


def _root_paths(data: dict[str, Any], folder: Path) -> None:
    """Make the paths of tasks and images absolute: they are relative to what names them."""
    tasks, images = data.get("tasks"), data.get("images")
    if isinstance(tasks, dict) and isinstance(tasks.get("path"), str):
        data["tasks"] = tasks | {"path": str((folder / tasks["path"]).absolute())}
    if isinstance(images, dict):
        here = str(folder.absolute())
        data["images"] = {
            name: rooted(source, here) if isinstance(source, str) else source
            for name, source in cast("dict[str, Any]", images).items()
        }


def load_changes(settings: Iterable[str], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return KEY=VALUE settings that are put over those of another run, as they are, and labels;
    ``from_step`` may be among them.

    Raises BadRunFile for what is wrong whatever the other settings are: an unknown key, a type.
    """
    data: dict[str, Any] = {}
    for setting in settings:
        _put(data, setting)
    for key, value in labels.items():
        _put_at(data, "--label", ["labels", key], value)
    _root_paths(data, Path())
    from_step = data.get("from_step", 0)
    if isinstance(from_step, bool) or not isinstance(from_step, int):
        raise BadRunFile("--set", ["from_step: should be a whole number"])
    named = _named_rubric("--set", data)
    given = {key: value for key, value in data.items() if key != "from_step"}
    try:
        RunSpec.model_validate(given | dict.fromkeys(named, "v1"))
    except ValidationError as error:
        # A rule that spans fields is the server's to judge: it knows the other ones.
        if any(one["loc"] for one in error.errors()):
            raise BadRunFile("--set", problems_of(error, RunSpec)) from None
    return data | named


def load_limits(settings: Iterable[str]) -> dict[str, Any]:
    """Return what ``budget.KEY=VALUE`` settings change as a run is resumed; null lifts a limit.

    Raises BadRunFile, which names every field that is wrong.
    """
    data: dict[str, Any] = {}
    for setting in settings:
        _put(data, setting)
    others = [key for key in data if key != "budget"]
    if others:
        what = "only budget.* can change as a run is resumed; fork it to change the rest"
        raise BadRunFile("--set", [f"{key}: {what}" for key in others])
    try:
        RunSpec.model_validate(data)
    except ValidationError as error:
        raise BadRunFile("--set", problems_of(error, RunSpec)) from None
    return data["budget"]


def _named_rubric(source: str, data: dict[str, Any]) -> dict[str, str]:
    """Return {"rubric": NAME} where settings name one: which there are, the server knows."""
    name = data.get("rubric")
    if not isinstance(name, str):
        return {}
    try:
        return {"rubric": str(parse_reference(name))}
    except ValueError as error:
        raise BadRunFile(source, [f"rubric: {error}"]) from None


def settings_of(path: str, expected: str) -> tuple[str, dict[str, Any]]:
    """Return what a file is called, and the mapping that it holds; ``-`` is standard input.

    Raises BadRunFile; ``expected`` says what there should be.
    """
    source = "standard input" if path == "-" else path
    return source, _mapping(source, parse_yaml(source, _read(source, path)), expected)


def _read(source: str, path: str) -> bytes:
    try:
        if path == "-":
            text = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadRunFile(source, [f"cannot be read: {error.strerror}"]) from None
    if len(text) > MAX_BYTES:
        raise BadRunFile(source, [f"is larger than {MAX_BYTES} bytes"])
    return text


def parse_yaml(source: str, text: bytes | str) -> Any:
    """Return the one YAML document of a text.

    Raises BadRunFile with line and column where it is broken.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise BadRunFile(source, [f"{where}{error.problem or error.context}"]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        words = str(error).splitlines()[0]
        raise BadRunFile(source, [f"is not a YAML text: {words}"]) from None
    except _UNFIT as error:
        raise BadRunFile(source, [f"holds a value that YAML cannot read: {error}"]) from None
    except RecursionError:
        raise BadRunFile(source, ["is nested too deeply"]) from None


def _mapping(source: str, data: Any, expected: str) -> dict[str, Any]:
    if data is None:
        raise BadRunFile(source, [f"is empty: expected {expected}"])
    if not isinstance(data, dict):
        raise BadRunFile(source, [f"expected {expected}, found a {type(data).__name__}"])
    return cast(dict[str, Any], data)


def _put(data: dict[str, Any], setting: str) -> None:
    """Put one ``a.b=VALUE`` into the settings; raises BadRunFile."""
    path, equals, text = setting.partition("=")
    source = f"--set {path}"
    names = _names(path)
    if not equals or not all(names):
        raise BadRunFile(source, ["expected KEY=VALUE such as faults.flaky_trial_rate=0.25"])
    _put_at(data, source, names, parse_yaml(source, text))


def _put_at(data: dict[str, Any], source: str, names: list[str], value: Any) -> None:
    place = data
    for depth, name in enumerate(names[:-1], start=1):
        below = place.get(name)
        if below is None:
            below = place[name] = {}
        if not isinstance(below, dict):
            raise BadRunFile(source, [f"{'.'.join(names[:depth])} holds no settings"])
        place = cast(dict[str, Any], below)
    place[names[-1]] = value


def _names(path: str) -> list[str]:
    for free in _FREE_NAMES:
        if path.startswith(f"{free}."):
            return [*free.split("."), path[len(free) + 1 :]]
    return path.split(".")


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return one line a mistake, ``field: message``, each field once."""
    lines: dict[str, None] = {}
    for one in error.errors(include_url=False):
        place = one["loc"]
        if place[:1] == ("rubric",) and len(place) > 1:
            place = ("rubric", *place[2:])  # without the kind that it is, a name or a whole one
        message = _message(model, one["type"], one["msg"], place, one["input"])
        lines[": ".join(filter(None, (_field(place), message)))] = None
    return list(lines)


def _field(place: tuple[int | str, ...]) -> str:
    text = ""
    for part in place:
        if part == "[key]":
            continue
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _message(
    model: type[BaseModel], kind: str, message: str, place: tuple[int | str, ...], given: Any
) -> str:
    if kind == "extra_forbidden":
        known = _known_keys(model, place[:-1])
        near = meant(str(place[-1]), known)
        known_ones = f"; did you mean {near}?" if near else f"; known are {', '.join(known)}"
        return f"unknown key{known_ones}"
    words = message.removeprefix("Value error, ").replace("Input should", "should")
    if kind in ("float_type", "int_type") and isinstance(given, str):
        number = _as_number(given)
        words += f", not the text {given[:40]!r}"
        words += f" (YAML reads {given} as text: write {number!r})" if number is not None else ""
    if kind == "string_type" and isinstance(given, bool | int | float):
        text = json.dumps(given)
        words += f": YAML reads {text} as no text, quote it: '\"{text}\"' on a command line"
    return words


def _as_number(text: str) -> float | int | None:
    """Return the number that a text such as 1e-3 is to everyone but YAML 1.1."""
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _known_keys(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """Return the settings of the part of a model at a place."""
    for part in place:
        field = model.model_fields.get(str(part))
        if field is None:
            continue  # an index
        candidates: list[Any] = [field.annotation, *_arguments(field.annotation)]
        models = [one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)]
        model = models[0] if models else model
    return list(model.model_fields)


def _arguments(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__args__", ())
