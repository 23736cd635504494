"""Which images a Dockerfile is built from, and what only a daemon builds of it. Pure.

Whether the rest can be built, the build says; context.py has what is seen without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_DIRECTIVE = re.compile(r"#\s*escape\s*=\s*([\\`])\s*", re.IGNORECASE)
_HEREDOC = re.compile(r"(?<!<)<<(-?)(['\"]?)([A-Za-z_][\w.-]*)\2")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::([-+])([^}]*))?\}|(\w+))")
_FROM = re.compile(r"(?:--\w[\w-]*=\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)
_COPY_FROM = re.compile(r"--from=(\S+)")

REMOTE = re.compile(r"(https?|ftp|git|ssh)://|git@", re.IGNORECASE)
_ARCHIVE = re.compile(r"\.(tar|tgz|tbz2?|txz|tar\.(gz|bz2|xz|zst))$", re.IGNORECASE)
_MOUNTS = frozenset({"cache", "tmpfs"})
_MOST_NAME_CHARS = 4096
_REGISTRIES = ("docker.io/", "index.docker.io/", "library/")


class Instruction(NamedTuple):
    """One instruction: the line that it begins at, its name and the rest of its text."""

    line: int
    name: str
    rest: str


class UnknownImageError(ValueError):
    """An image is named by a build argument that has no default, or not at all."""


def bases(text: str) -> list[str]:
    """Return the images that a Dockerfile names in FROM and COPY --from, each once, in order.

    Stages of its own and ``scratch`` are none. Raises UnknownImageError.
    """
    arguments: dict[str, str] = {}
    stages: list[str] = []
    found: dict[str, None] = {}
    for _, instruction, rest in instructions(text):
        if instruction == "ARG" and not stages:
            arguments |= _arguments(rest)
        elif instruction == "FROM":
            match = _FROM.match(rest)
            if match is None:
                raise UnknownImageError("FROM names no image")
            image = _filled(match[1], arguments)
            if image != "scratch" and image.lower() not in stages:
                found[image] = None
            stages.append((match[2] or str(len(stages))).lower())
        elif instruction in ("COPY", "ADD") and (match := _COPY_FROM.search(rest)):
            image = _filled(match[1], arguments)
            if image.lower() not in stages and not image.isdigit():
                found[image] = None
    if not stages:
        raise UnknownImageError("there is no FROM")
    return list(found)


def unbuildable(text: str) -> list[str]:
    """Return what a Dockerfile has that is built by a Docker daemon only, each once, in order."""
    found: dict[str, None] = {}
    stages: list[str] = []
    for _, instruction, rest in instructions(text):
        flags, words = flags_of(rest)
        if instruction == "FROM":
            stages.append(words[2].lower() if len(words) > 2 else str(len(stages)))
        elif instruction == "RUN":
            kinds = [_mount_kind(value) for key, value in flags if key == "mount"]
            found |= {f"RUN --mount=type={kind}": None for kind in kinds if kind not in _MOUNTS}
            found |= {f"RUN --{key}": None for key, _ in flags if key == "security"}
        elif instruction in ("COPY", "ADD"):
            stage = dict(flags).get("from")
            if stage is not None and stage.lower() not in stages and not stage.isdigit():
                found[f"{instruction} --from={stage}"] = None
            if any(REMOTE.match(word) for word in words[:-1]):
                found[f"{instruction} of an address"] = None
            if instruction == "ADD" and any(_ARCHIVE.search(word) for word in words[:-1]):
                found["ADD of an archive"] = None
    return list(found)


def needs_buildkit(text: str) -> list[str]:
    """Return what a Dockerfile has that a daemon builds with BuildKit only, each once, in order."""
    found: dict[str, None] = {}
    for _, instruction, rest in instructions(text):
        flags, _ = flags_of(rest)
        names = {
            "RUN": ("mount", "security", "network"),
            "COPY": ("chmod", "link"),
            "ADD": ("chmod",),
        }
        if _takes_heredoc(f"{instruction} {rest}") and _HEREDOC.search(rest):
            found[f"{instruction} with a here-document"] = None
        wanted = names.get(instruction, ())
        found |= {f"{instruction} --{key}": None for key, _ in flags if key in wanted}
    return list(found)


def flags_of(rest: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the flags at the front of an instruction's text, and the words after them."""
    words = rest.replace("[", " ").replace("]", " ").replace(",", " ").split()
    flags: list[tuple[str, str]] = []
    for word in rest.split():
        if not word.startswith("--"):
            break
        key, _, value = word[2:].partition("=")
        flags.append((key, value))
    return flags, [word.strip("'\"") for word in words if not word.startswith("--")]


def _mount_kind(value: str) -> str:
    kinds = [part.removeprefix("type=") for part in value.split(",") if part.startswith("type=")]
    return kinds[0] if kinds else "bind"


def plain_name(image: str) -> str:
    """Return an image's name without what FROM may leave out: the default registry and tag."""
    for prefix in _REGISTRIES:
        image = image.removeprefix(prefix)
    last = image.rpartition("/")[2]
    return image if ":" in last or "@" in last else f"{image}:latest"


def _arguments(rest: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in rest.split())
    return {name: value.strip("'\"") for name, equals, value in pairs if equals}


def _filled(word: str, arguments: dict[str, str]) -> str:
    room = _MOST_NAME_CHARS

    def value(match: re.Match[str]) -> str:
        nonlocal room
        found = chosen(match)
        room -= len(found)
        if room < 0:  # checked as it grows: a name may ask for one value ten thousand times
            raise UnknownImageError(f"an image's name has more than {_MOST_NAME_CHARS} characters")
        return found

    def chosen(match: re.Match[str]) -> str:
        name = match[1] or match[4]
        known = arguments.get(name, "")
        if match[2] == "+":
            return match[3] if known else ""
        known = known or match[3] or ""
        if not known:
            raise UnknownImageError(f"{word} is a build argument without a default")
        return known

    return _VARIABLE.sub(value, word.strip("'\""))


def instructions(text: str) -> Iterator[Instruction]:
    """Yield each instruction, continuation lines joined; the texts of here-documents and comments
    are passed over."""
    lines = iter(enumerate(text.removeprefix("\ufeff").splitlines(), 1))
    escape, first, whole, begun = "\\", True, "", 0
    for number, line in lines:
        stripped = line.strip()
        if first and (directive := _DIRECTIVE.fullmatch(stripped)):
            escape = directive[1]
        first = first and stripped.startswith("#")
        if not stripped or stripped.startswith("#"):
            continue
        begun = begun or number
        if stripped.endswith(escape):
            whole += f"{stripped[:-1]} "
            continue
        whole += stripped
        yield Instruction(begun, *_split(whole))
        for match in _HEREDOC.finditer(whole) if _takes_heredoc(whole) else ():
            for _, body in lines:
                if (body.lstrip("\t") if match[1] else body) == match[3]:
                    break
        whole, begun = "", 0
    if whole.strip():
        yield Instruction(begun, *_split(whole))


def _split(line: str) -> tuple[str, str]:
    instruction, *rest = line.split(None, 1)
    return instruction.upper(), "".join(rest).strip()


def _takes_heredoc(line: str) -> bool:
    return _split(line)[0] in ("RUN", "COPY", "ADD")
