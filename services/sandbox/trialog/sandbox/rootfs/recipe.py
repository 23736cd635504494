"""From a recipe to a plan: its stages, their bases, and the digest of all that counts."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass

from trialog.sandbox.errors import ImageError
from trialog.sandbox.images import Recipe
from trialog.sandbox.rootfs import bases, dockerfile
from trialog.sandbox.rootfs.bases import Base
from trialog.sandbox.rootfs.context import Context, read_text
from trialog.sandbox.rootfs.dockerfile import IGNORED, Dockerfile, Instruction
from trialog.sandbox.rootfs.expansion import Expansion, check_environment, expand, pairs

_FORMAT = 1  # raised when the same recipe is to give another image
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A stage that is needed: what it begins from (a base, or an earlier stage by number)."""

    number: int
    line: int
    base: Base | int
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A recipe looked into. ``digest`` is of its content and its bases'; ``base`` where an image is
    taken as it is; else stages in the order in which they are built, the last the result.

    ``names`` are the numbers of stages by their aliases, ``arguments`` the global ones.
    """

    recipe: Recipe
    digest: str
    base: Base | None = None
    stages: tuple[PlannedStage, ...] = ()
    names: Mapping[str, int] | None = None
    arguments: Mapping[str, str] | None = None
    escape: str = "\\"


def plan(recipe: Recipe) -> Plan:
    """Look into a recipe without building anything (blocking). Raises ImageError."""
    if recipe.docker_image is not None:
        base = bases.resolve(recipe.docker_image, recipe.images)
        return Plan(recipe, _digest({"image": base.identity}), base)
    if recipe.dockerfile is None:
        raise ImageError("the task has neither a Dockerfile nor a docker_image")
    text = read_text(recipe.context, recipe.dockerfile)
    try:
        return _plan(recipe, dockerfile.parse(text))
    except (ImageError, OSError) as error:
        raise ImageError(f"{recipe.dockerfile}: {error}") from error


def _plan(recipe: Recipe, file: Dockerfile) -> Plan:
    arguments = arguments_of(file)
    names = {stage.alias: at for at, stage in enumerate(file.stages) if stage.alias}
    needed = _needed(file, names)
    stages: list[PlannedStage] = []
    for at, stage in enumerate(file.stages):
        if at not in needed:
            continue
        try:
            name = expand(stage.base, arguments, file.escape)
            earlier = names.get(name.lower(), at)
            base = earlier if earlier < at else bases.resolve(name, recipe.images)
        except ImageError as error:
            raise ImageError(f"line {stage.line}: {error}") from error
        done = tuple(each for each in stage.instructions if each.name not in IGNORED)
        stages.append(PlannedStage(at, stage.line, base, done))
    content = {
        "stages": [_meaning(stage) for stage in stages],
        "names": names,
        "arguments": arguments,
        "context": Context(recipe.context).digest() if _copies(stages) else "",
    }
    return Plan(recipe, _digest(content), None, tuple(stages), names, arguments, file.escape)


def arguments_of(file: Dockerfile) -> dict[str, str]:
    """Return the variables of FROM: the file's global ARGs, and what every builder gives."""
    machine = _MACHINES.get(platform.machine(), platform.machine())
    given = {"OS": "linux", "ARCH": machine, "PLATFORM": f"linux/{machine}"}
    found = {f"{who}{key}": given[key] for who in ("TARGET", "BUILD") for key in given}
    expansion = Expansion(file.escape)
    for each in file.arguments:
        try:
            for name, value in pairs(each.text, file.escape):
                found[name] = expansion.expand(value, found)
            check_environment(found)
        except ImageError as error:
            raise ImageError(f"line {each.line}: {error}") from error
    return found


def source_of(each: Instruction) -> str | None:
    """Return the stage or image that COPY takes from, None for the build context."""
    return next((value for key, value in each.flags if key == "from"), None)


def stage_number(name: str, names: Mapping[str, int], below: int) -> int | None:
    """Return the number of an earlier stage by its name or number."""
    found = names.get(name.lower(), int(name) if name.isdigit() else None)
    return found if found is not None and found < below else None


def _needed(file: Dockerfile, names: Mapping[str, int]) -> set[int]:
    """Only what the last stage takes from is built, as BuildKit does."""
    needed: set[int] = set()
    ahead = [len(file.stages) - 1]
    while ahead:
        at = ahead.pop()
        if at in needed:
            continue
        needed.add(at)
        stage = file.stages[at]
        taken = [source for each in stage.instructions if (source := source_of(each))]
        for name in (stage.base, *taken):
            number = stage_number(name, names, at)
            if number is not None:
                ahead.append(number)
    return needed


def _copies(stages: list[PlannedStage]) -> bool:
    """Only what COPY and ADD take makes the context count."""
    return any(
        each.name in ("COPY", "ADD") and source_of(each) is None
        for stage in stages
        for each in stage.instructions
    )


def _meaning(stage: PlannedStage) -> list[object]:
    base = stage.base if isinstance(stage.base, int) else stage.base.identity
    done = [
        [each.name, each.flags, each.text, [[h.name, h.text, h.literal] for h in each.heredocs]]
        for each in stage.instructions
    ]
    return [stage.number, base, done]


def _digest(parts: Mapping[str, object]) -> str:
    text = json.dumps({"rootfs": _FORMAT, **parts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
