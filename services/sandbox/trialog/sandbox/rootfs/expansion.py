"""Variables and words in a Dockerfile's instructions, as the Dockerfile reference has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trialog.sandbox.errors import ImageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def expand(text: str, variables: Mapping[str, str], escape: str = "\\") -> str:
    """Return a word with its variables replaced and its quotes removed.

    Known are $NAME, ${NAME}, ${NAME:-word}, ${NAME-word}, ${NAME:+word}, ${NAME+word}. Nothing is
    replaced within single quotes. Raises ImageError on other forms.
    """
    out: list[str] = []
    at, quote = 0, ""
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
            value, at = _variable(text, at + 1, variables, escape)
            out.append(value)
        else:
            out.append(char)
            at += 1
    return "".join(out)


def _variable(text: str, at: int, variables: Mapping[str, str], escape: str) -> tuple[str, int]:
    """Return the value of what follows a dollar, and where the text goes on."""
    if text[at : at + 1] != "{":
        match = _NAME.match(text, at)
        if match is None:
            return "$", at
        return variables.get(match[0], ""), match.end()
    end = _closing(text, at)
    inner = text[at + 1 : end]
    match = _NAME.match(inner)
    name, rest = (match[0], inner[match.end() :]) if match else ("", inner)
    value = variables.get(name)
    form = re.fullmatch(r"(:?)([-+])(.*)", rest, re.DOTALL)
    if not name or (rest and form is None):
        raise ImageError(f"${{{inner}}} is not a form that is known here")
    if form is None:
        return value or "", end + 1
    there = bool(value) if form[1] else value is not None
    if form[2] == "-":
        found = value or "" if there else expand(form[3], variables, escape)
    else:
        found = expand(form[3], variables, escape) if there else ""
    return found, end + 1


def _closing(text: str, at: int) -> int:
    depth = 0
    for end in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if not depth:
            return end
    raise ImageError(f"a brace is not closed in {text!r}")


def words(text: str, escape: str = "\\") -> list[str]:
    """Part a line at its blanks, quotes and escapes kept for ``expand``."""
    return list(_words(text, escape))


def _words(text: str, escape: str) -> Iterator[str]:
    word, quote, skip = "", "", False
    for char in text:
        if skip:
            word, skip = word + char, False
        elif char == escape and quote != "'":
            word, skip = word + char, True
        elif char.isspace() and not quote:
            if word:
                yield word
            word = ""
        else:
            if char in "\"'" and quote in ("", char):
                quote = "" if quote else char
            word += char
    if word:
        yield word


def pairs(text: str, escape: str = "\\") -> list[tuple[str, str]]:
    """Return the names and (still quoted) values of ENV or ARG; also ``ENV name the value``."""
    found = words(text, escape)
    if found and "=" not in found[0]:
        name, _, value = text.strip().partition(" ")
        return [(name, value.strip())]
    split = [word.partition("=") for word in found]
    if any(not equals for _, equals, _ in split):
        raise ImageError(f"{text!r} is not a list of NAME=VALUE")
    return [(name, value) for name, _, value in split]
