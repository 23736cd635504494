"""Reading a Dockerfile as far as its bases go: what its FROM and COPY --from name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S+)\s*")
_ARG = re.compile(r"(\w+)(?:=(.*))?", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})")
_REMOTE = re.compile(r"[\w+.-]+://|git@")
_LISTED = "[]\"',"
_QUOTES = "\"'"


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction: the numbers of its lines, from 0, and its words."""

    numbers: range
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Base:
    """An image that the file builds on. ``word`` is how it is written there, on ``lines``."""

    name: str
    word: str
    lines: range


def bases(text: str) -> list[Base]:
    """Return the images that must be there first, in the file's order; its own stages are none."""
    found: list[Base] = []
    args: dict[str, str] = {}
    stages: set[str] = set()
    count = 0
    for line in _lines(text):
        match line.words[0].upper():
            case "ARG" if not count:
                _take_args(args, line.words[1:])
            case "FROM":
                words = [word for word in line.words[1:] if not word.startswith("--")]
                if not words:
                    continue
                name = _filled(words[0], args)
                if name.lower() not in stages and name != "scratch":
                    found.append(Base(name, words[0], line.numbers))
                count += 1
                stages.add(str(count - 1))
                if len(words) == 3 and words[1].upper() == "AS":
                    stages.add(words[2].lower())
            case "COPY" | "ADD":
                found += _copied(line, stages)
            case _:
                pass
    return found


def fetches(text: str) -> list[str]:
    """Return the addresses that ADD takes files from: the daemon itself would fetch them."""
    added = (line.words[1:-1] for line in _lines(text) if line.words[0].upper() == "ADD")
    words = (word.strip(_LISTED) for words in added for word in words)
    return [word for word in words if _REMOTE.match(word)]


def rebased(text: str, names: Mapping[str, str]) -> str:
    """Return the file with other names for some of its bases."""
    lines = text.split("\n")
    for base in bases(text):
        if base.name in names:
            for number in base.lines:
                lines[number] = _replaced(lines[number], base.word, names[base.name])
    return "\n".join(lines)


def _replaced(line: str, word: str, name: str) -> str:
    """Put a name in place of a word that stands alone or is what a flag says."""
    return re.sub(rf"(?<=[\s=]){re.escape(word)}(?=\s|$)", lambda _: name, line, count=1)


def _copied(line: Line, stages: set[str]) -> list[Base]:
    """No variable is filled in here: Docker does not either."""
    named = [word[7:] for word in line.words if word.startswith("--from=")]
    return [Base(name, name, line.numbers) for name in named if name.lower() not in stages]


def _take_args(args: dict[str, str], words: tuple[str, ...]) -> None:
    for word in words:
        if (found := _ARG.fullmatch(word)) and found[2] is not None:
            args[found[1]] = _filled(found[2].strip(_QUOTES), args)


def _filled(text: str, args: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        given = args.get(found[1] or found[2], "")
        match found[3]:
            case "-" | ":-":
                return given or found[4]
            case "+" | ":+":
                return found[4] if given else ""
            case _:
                return given

    return _VARIABLE.sub(value, text.strip(_QUOTES))


def _lines(text: str) -> Iterator[Line]:
    """Join what the escape character carries on; comments and empty lines are none."""
    escape, directives = "\\", True
    started, joined = 0, ""
    for number, raw in enumerate(text.split("\n")):
        stripped = raw.strip()
        if directives and (found := _DIRECTIVE.fullmatch(stripped)):
            escape = found[2] if found[1].lower() == "escape" else escape
            continue
        directives = False
        if not stripped or stripped.startswith("#"):
            continue
        if not joined:
            started = number
        if stripped.endswith(escape):
            joined += stripped[:-1] + " "
            continue
        words = tuple((joined + stripped).split())
        joined = ""
        if words:
            yield Line(range(started, number + 1), words)
    if words := tuple(joined.split()):
        yield Line(range(started, text.count("\n") + 1), words)
