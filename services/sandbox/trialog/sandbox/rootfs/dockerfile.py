"""Reading a Dockerfile into instructions, and those into stages. Nothing is expanded here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from trialog.sandbox.errors import ImageError

IGNORED = frozenset(
    ("CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "ONBUILD", "STOPSIGNAL")
)
KNOWN = IGNORED | {
    "ADD", "ARG", "COPY", "ENV", "FROM", "RUN", "SHELL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip
_DIRECTIVE = re.compile(r"#\s*([a-z]+)\s*=\s*(\S+)\s*", re.IGNORECASE)
_HEREDOC = re.compile(r"""(?<!<)<<(-?)(["']?)([A-Za-z_][A-Za-z0-9_]*)\2""")
_FLAG = re.compile(r"--([a-z][a-z.-]*)(?:=(\S*))?(?:\s+|$)")
_MAX_LINES = 20_000
_MAX_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A text given in the file itself; ``literal``: no variable is replaced in it."""

    name: str
    text: str
    literal: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name, flags, the rest of its text, and where it began."""

    line: int
    name: str
    text: str
    flags: tuple[tuple[str, str], ...] = ()
    heredocs: tuple[Heredoc, ...] = ()

    def words(self) -> list[str] | None:
        """Return the words of the exec (JSON) form, None where it is the other."""
        if not self.text.startswith("["):
            return None
        try:
            found = json.loads(self.text)
        except ValueError:
            return None
        ok = isinstance(found, list) and all(isinstance(word, str) for word in found)
        return found if ok else None


@dataclass(frozen=True, slots=True)
class Stage:
    """FROM and what follows it. ``alias`` is its name after AS, in lower case."""

    line: int
    base: str
    alias: str = ""
    instructions: tuple[Instruction, ...] = ()


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A file that was read: global ARGs, stages in order, the escape character."""

    arguments: tuple[Instruction, ...]
    stages: tuple[Stage, ...]
    escape: str = "\\"
    ignored: tuple[str, ...] = field(default=())


def parse(text: str) -> Dockerfile:
    """Read a Dockerfile. Raises ImageError that names the line."""
    if len(text) > _MAX_CHARS:
        raise ImageError(f"the Dockerfile is longer than {_MAX_CHARS} characters")
    lines = text.removeprefix("\ufeff").splitlines()
    if len(lines) > _MAX_LINES:
        raise ImageError(f"the Dockerfile has more than {_MAX_LINES} lines")
    escape = _escape(lines)
    found = list(_instructions(lines, escape))
    arguments: list[Instruction] = []
    stages: list[Stage] = []
    inside: list[Instruction] = []
    for each in found:
        if each.name == "FROM":
            _close(stages, inside)
            stages.append(_stage(each))
        elif not stages and each.name != "ARG":
            raise ImageError(f"line {each.line}: {each.name} stands before any FROM")
        else:
            (inside if stages else arguments).append(each)
    _close(stages, inside)
    if not stages:
        raise ImageError("the Dockerfile has no FROM")
    ignored = sorted({each.name for each in found if each.name in IGNORED})
    return Dockerfile(tuple(arguments), tuple(stages), escape, tuple(ignored))


def _close(stages: list[Stage], inside: list[Instruction]) -> None:
    if stages:
        last = stages[-1]
        stages[-1] = Stage(last.line, last.base, last.alias, tuple(inside))
    inside.clear()


def _stage(each: Instruction) -> Stage:
    words = each.text.split()
    if len(words) == 3 and words[1].lower() == "as":
        return Stage(each.line, words[0], words[2].lower())
    if len(words) != 1:
        raise ImageError(f"line {each.line}: FROM takes IMAGE [AS NAME]")
    return Stage(each.line, words[0])


def _escape(lines: list[str]) -> str:
    """Directives stand before anything else."""
    for line in lines:
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is None:
            break
        if match[1].lower() == "escape":
            if match[2] not in "\\`":
                raise ImageError(f"escape={match[2]} is neither \\ nor `")
            return match[2]
    return "\\"


def _instructions(lines: list[str], escape: str) -> Iterator[Instruction]:
    at = 0
    while at < len(lines):
        begun, text = at + 1, ""
        while at < len(lines):
            line = lines[at]
            at += 1
            stripped = line.strip()
            if stripped.startswith("#") or (text and not stripped):
                continue  # comments and empty lines may stand within an instruction
            if not stripped:
                begun = at + 1
                continue
            if not text:
                begun = at
            whole = line.rstrip()
            if whole.endswith(escape):
                text += whole[:-1]
                continue
            text += whole
            break
        if not text.strip():
            continue
        name, flags, rest = _parts(text.strip(), begun)
        heredocs, at = _heredocs(name, rest, lines, at)
        yield Instruction(begun, name, rest, flags, heredocs)


def _parts(text: str, line: int) -> tuple[str, tuple[tuple[str, str], ...], str]:
    name, *after = text.split(None, 1)
    name, rest = name.upper(), "".join(after).strip()
    if name not in KNOWN:
        raise ImageError(f"line {line}: {name[:40]} is not a known instruction")
    flags: list[tuple[str, str]] = []
    if name in ("RUN", "COPY", "ADD", "FROM"):
        at = 0
        while match := _FLAG.match(rest, at):
            flags.append((match[1], match[2] or ""))
            at = match.end()
        rest = rest[at:]
    if not rest:
        raise ImageError(f"line {line}: {name} says nothing")
    return name, tuple(flags), rest


def _heredocs(name: str, text: str, lines: list[str], at: int) -> tuple[tuple[Heredoc, ...], int]:
    found: list[Heredoc] = []
    if name not in ("RUN", "COPY", "ADD"):
        return (), at
    for match in _HEREDOC.finditer(text):
        content: list[str] = []
        while True:
            if at >= len(lines):
                raise ImageError(f"<<{match[3]} has no end")
            line = lines[at].lstrip("\t") if match[1] else lines[at]
            at += 1
            if line == match[3]:
                break
            content.append(line + "\n")
        found.append(Heredoc(match[3], "".join(content), bool(match[2])))
    return tuple(found), at


def without_heredocs(text: str) -> str:
    """Return an instruction's text with its heredocs' marks replaced by their names alone."""
    return _HEREDOC.sub(lambda match: f"<<{match[3]}", text)
