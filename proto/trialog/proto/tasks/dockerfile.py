"""Which images a Dockerfile is built from: what must be there before a build begins. Pure.

Only what names an image is read; whether the rest can be built, the build says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_DIRECTIVE = re.compile(r"#\s*escape\s*=\s*([\\`])\s*", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::([-+])([^}]*))?\}|(\w+))")
_FROM = re.compile(r"(?:--\w[\w-]*=\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)
_COPY_FROM = re.compile(r"--from=(\S+)")


class UnknownImageError(ValueError):
    """An image is named by a build argument that has no default, or not at all."""


def bases(text: str) -> list[str]:
    """Return the images that a Dockerfile names in FROM and COPY --from, each once, in order.

    Stages of its own and ``scratch`` are none. Raises UnknownImageError.
    """
    arguments: dict[str, str] = {}
    stages: list[str] = []
    found: dict[str, None] = {}
    for instruction, rest in _instructions(text):
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


def _arguments(rest: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in rest.split())
    return {name: value.strip("'\"") for name, equals, value in pairs if equals}


def _filled(word: str, arguments: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[4]
        known = arguments.get(name, "")
        if match[2] == "+":
            return match[3] if known else ""
        known = known or match[3] or ""
        if not known:
            raise UnknownImageError(f"{word} is a build argument without a default")
        return known

    return _VARIABLE.sub(value, word.strip("'\""))


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction with the rest of its line, continuation lines joined; here-documents
    and comments are passed over."""
    lines = iter(text.splitlines())
    escape, first, whole = "\\", True, ""
    for line in lines:
        stripped = line.strip()
        if first and (directive := _DIRECTIVE.fullmatch(stripped)):
            escape = directive[1]
        first = first and stripped.startswith("#")
        if not stripped or stripped.startswith("#"):
            continue
        if stripped.endswith(escape):
            whole += f"{stripped[:-1]} "
            continue
        whole += stripped
        yield _split(whole)
        for match in _HEREDOC.finditer(whole) if _takes_heredoc(whole) else ():
            for body in lines:
                if body.strip() == match[2]:
                    break
        whole = ""
    if whole.strip():
        yield _split(whole)


def _split(line: str) -> tuple[str, str]:
    instruction, _, rest = line.partition(" ")
    return instruction.upper(), rest.strip()


def _takes_heredoc(line: str) -> bool:
    return _split(line)[0] in ("RUN", "COPY", "ADD")
