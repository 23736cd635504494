"""Variables and words in a Dockerfile's instructions, as the Dockerfile reference has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trialog.sandbox.errors import ImageError

MAX_VALUE = 64_000
MAX_NAMES = 1_000
MAX_ENVIRONMENT = 256_000
MAX_NESTED = 16
_MAX_TOTAL = 32 << 20
_EACH = 256  # what looking at a word costs beside its length
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Expansion:
    """The expansions of one Dockerfile, which are bounded together: a variable may hold another
    twice, that one a third twice, and so on."""

    def __init__(self, escape: str = "\\") -> None:
        self._escape = escape
        self._left = _MAX_TOTAL

    def expand(self, text: str, variables: Mapping[str, str]) -> str:
        """Return what ``expand`` does. Raises ImageError above the caps, too."""
        found = expand(text, variables, self._escape)
        self._left -= len(text) + len(found) + _EACH
        if self._left < 0:
            raise ImageError(f"the variables come to more than {_MAX_TOTAL} characters in all")
        return found


def check_environment(variables: Mapping[str, str]) -> None:
    """Refuse more variables than a command is given. Raises ImageError."""
    if len(variables) > MAX_NAMES:
        raise ImageError(f"there are more than {MAX_NAMES} variables")
    if sum(len(name) + len(value) for name, value in variables.items()) > MAX_ENVIRONMENT:
        raise ImageError(f"the variables are longer than {MAX_ENVIRONMENT} characters together")


def expand(text: str, variables: Mapping[str, str], escape: str = "\\", *, depth: int = 0) -> str:
    """Return a word with its variables replaced and its quotes removed.

    Known are $NAME, ${NAME}, ${NAME:-word}, ${NAME-word}, ${NAME:+word}, ${NAME+word}. Nothing is
    replaced within single quotes. Raises ImageError on other forms, and above the caps.
    """
    if depth > MAX_NESTED:
        raise ImageError(f"variables are nested more than {MAX_NESTED} deep")
    out: list[str] = []
    at, quote, size = 0, "", 0
    while at < len(text):
        char = text[at]
        if char == escape and quote != "'" and at + 1 < len(text):
            after = text[at + 1]
            # Within double quotes only these are escaped.
            out.append(after if not quote or after in f'"${escape}' else char + after)
            at += 2
        elif char in "\"'" and quote in ("", char):
            quote = "" if quote else char
            at += 1
        elif char == "$" and quote != "'":
            value, at = _variable(text, at + 1, variables, escape, depth)
            out.append(value)
        else:
            out.append(char)
            at += 1
        size += len(out[-1]) if out else 0
        if size > MAX_VALUE:
            raise ImageError(f"a value is longer than {MAX_VALUE} characters")
    return "".join(out)


def _variable(
    text: str, at: int, variables: Mapping[str, str], escape: str, depth: int
) -> tuple[str, int]:
    """Return the value of what follows a dollar, and where the text goes on."""
    if text[at : at + 1] != "{":
        match = _NAME.match(text, at)
        if match is None:
            return "$", at
        return variables.get(match[0], ""), match.end()
    end = closing(text, at)
    inner = text[at + 1 : end]
    match = _NAME.match(inner)
    name, rest = (match[0], inner[match.end() :]) if match else ("", inner)
    value = variables.get(name)
    form = re.fullmatch(r"(:?)([-+])(.*)", rest, re.DOTALL)
    if not name or (rest and form is None):
        raise ImageError(f"${{{inner[:200]}}} is not a form that is known here")
    if form is None:
        return value or "", end + 1
    there = bool(value) if form[1] else value is not None
    if form[2] == "-":
        found = value or "" if there else expand(form[3], variables, escape, depth=depth + 1)
    else:
        found = expand(form[3], variables, escape, depth=depth + 1) if there else ""
    return found, end + 1


def closing(text: str, at: int) -> int:
    """Return where the brace that opens at a place is closed. Raises ImageError."""
    depth = 0
    for end in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if not depth:
            return end
    raise ImageError(f"a brace is not closed in {text[:200]!r}")


def words(text: str, escape: str = "\\") -> list[str]:
    """Part a line at its blanks, quotes and escapes kept for ``expand``."""
    return list(_words(text, escape))


def _words(text: str, escape: str) -> Iterator[str]:
    word: list[str] = []
    quote, skip = "", False
    for char in text:
        if not skip and not quote and char != escape and char.isspace():
            if word:
                yield "".join(word)
            word = []
            continue
        word.append(char)
        if skip:
            skip = False
        elif char == escape and quote != "'":
            skip = True
        elif char in "\"'" and quote in ("", char):
            quote = "" if quote else char
    if word:
        yield "".join(word)


def pairs(text: str, escape: str = "\\") -> list[tuple[str, str]]:
    """Return the names and (still quoted) values of ENV or ARG; also ``ENV name the value``."""
    found = words(text, escape)
    if found and "=" not in found[0]:
        name, _, value = text.strip().partition(" ")
        return [(name, value.strip())]
    split = [word.partition("=") for word in found]
    if len(split) > MAX_NAMES:
        raise ImageError(f"there are more than {MAX_NAMES} variables")
    if any(not equals for _, equals, _ in split):
        raise ImageError(f"{text[:200]!r} is not a list of NAME=VALUE")
    return [(name, value) for name, _, value in split]
