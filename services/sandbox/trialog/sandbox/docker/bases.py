"""What a Dockerfile builds on, and giving that other names; what the daemon itself would fetch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trialog.sandbox.rootfs.dockerfile import Dockerfile, Instruction
from trialog.sandbox.rootfs.expansion import expand
from trialog.sandbox.rootfs.recipe import arguments_of, source_of, stage_number

_REMOTE = re.compile(r"[\w+.-]+://|git@")


@dataclass(frozen=True, slots=True)
class Base:
    """An image that must be there first. ``word`` is how the instruction at ``line`` has it."""

    name: str
    word: str
    line: int


def bases(file: Dockerfile) -> list[Base]:
    """Return the images of FROM and COPY --from in the file's order; its stages are none.

    Raises ImageError.
    """
    return list(_bases(file))


def _bases(file: Dockerfile) -> Iterator[Base]:
    arguments = arguments_of(file)
    names = {stage.alias: at for at, stage in enumerate(file.stages) if stage.alias}
    for at, stage in enumerate(file.stages):
        name = expand(stage.base, arguments, file.escape)
        if name != "scratch" and names.get(name.lower(), at) >= at:
            yield Base(name, stage.base, stage.line)
        for each in stage.instructions:
            source = source_of(each)
            if source is not None and stage_number(source, names, at) is None:
                yield Base(source, source, each.line)


def rebased(text: str, found: list[Base], names: Mapping[str, str]) -> str:
    """Return a file's text with other names for some of its bases."""
    lines = text.split("\n")
    for base in found:
        if names.get(base.name, base.name) == base.name:
            continue
        # The word stands alone or is what a flag says, maybe on a line that carries on the first.
        word = re.compile(rf"(?<=[\s=]){re.escape(base.word)}(?=\s|$)")
        for number in range(base.line - 1, len(lines)):
            lines[number], done = word.subn(lambda _, to=names[base.name]: to, lines[number], 1)
            if done:
                break
    return "\n".join(lines)


def fetches(file: Dockerfile) -> list[str]:
    """Return the addresses that ADD takes files from."""
    added = (each for stage in file.stages for each in stage.instructions if each.name == "ADD")
    return [word for each in added for word in _words(each)[:-1] if _REMOTE.match(word)]


def _words(each: Instruction) -> list[str]:
    words = each.words()
    return each.text.split() if words is None else words
