"""Which files of a build context ``.dockerignore`` leaves out, as Docker's own client reads it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from trialog.sandbox.errors import ImageError

NAME = ".dockerignore"


@dataclass(frozen=True, slots=True)
class Ignore:
    """The file's patterns in their order: the last that matches decides."""

    rules: tuple[tuple[bool, re.Pattern[str]], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the file. Raises ImageError on a pattern that is none."""
        rules: list[tuple[bool, re.Pattern[str]]] = []
        for line in text.removeprefix("\ufeff").splitlines():
            pattern = line.strip()
            if not pattern or line.startswith("#"):
                continue
            left_out = not pattern.startswith("!")
            cleaned = posixpath.normpath(pattern.removeprefix("!").strip()).lstrip("/")
            if cleaned == ".":
                continue
            try:
                rules.append((left_out, re.compile(_regex(cleaned))))
            except re.error as error:
                raise ImageError(f"{NAME}: {pattern!r} is no pattern: {error}") from error
        return cls(tuple(rules))

    def leaves_out(self, path: str) -> bool:
        """Tell whether a path below the context's folder is left out, by itself or by a folder."""
        parts = path.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        verdict = False
        for left_out, pattern in self.rules:
            if verdict != left_out and _any(pattern, above):
                verdict = left_out
        return verdict

    @property
    def brings_back(self) -> bool:
        """Tell whether a file in a folder that is left out may still be sent."""
        return any(not left_out for left_out, _ in self.rules)


def _any(pattern: re.Pattern[str], paths: Iterable[str]) -> bool:
    return any(pattern.fullmatch(path) for path in paths)


def _regex(pattern: str) -> str:
    """``*`` and ``?`` stay within a name, ``**`` stands for any number of folders."""
    out, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**", at):
            at += 2
            if pattern.startswith("/", at):
                at += 1
                out += "(?:.*/)?"
            else:
                out += ".*"
            continue
        char = pattern[at]
        at += 1
        if char == "[" and (end := pattern.find("]", at)) > 0:
            out += "[" + pattern[at:end] + "]"
            at = end + 1
        elif char == "\\" and at < len(pattern):
            out += re.escape(pattern[at])
            at += 1
        else:
            out += {"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char))
    return out
