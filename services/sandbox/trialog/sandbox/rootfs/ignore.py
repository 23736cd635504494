"""Which files of a build context ``.dockerignore`` leaves out, as Docker's own client reads it."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Self

from trialog.sandbox.errors import ImageError
from trialog.sandbox.rootfs.wildcards import Wildcards

NAME = ".dockerignore"
MAX_CHARS = 64_000
MAX_PATTERNS = 1_000


@dataclass(frozen=True, slots=True)
class Ignore:
    """The file's patterns in their order: the last that matches decides."""

    rules: tuple[tuple[bool, Wildcards], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the file. Raises ImageError on a pattern that is none, or above the caps."""
        if len(text) > MAX_CHARS:
            raise ImageError(f"{NAME} is longer than {MAX_CHARS} characters")
        rules: list[tuple[bool, Wildcards]] = []
        for line in text.removeprefix("\ufeff").splitlines():
            pattern = line.strip()
            if not pattern or line.startswith("#"):
                continue
            left_out = not pattern.startswith("!")
            cleaned = posixpath.normpath(pattern.removeprefix("!").strip()).lstrip("/")
            if cleaned == ".":
                continue
            try:
                rules.append((left_out, Wildcards(cleaned)))
            except (re.error, ValueError) as error:
                raise ImageError(f"{NAME}: {pattern[:200]!r} is no pattern: {error}") from error
            if len(rules) > MAX_PATTERNS:
                raise ImageError(f"{NAME} has more than {MAX_PATTERNS} patterns")
        return cls(tuple(rules))

    def leaves_out(self, path: str) -> bool:
        """Tell whether a path below the context's folder is left out, by itself or by a folder."""
        verdict = False
        for left_out, pattern in self.rules:
            if verdict != left_out and pattern.matches(path):
                verdict = left_out
        return verdict

    @property
    def brings_back(self) -> bool:
        """Tell whether a file in a folder that is left out may still be sent."""
        return any(not left_out for left_out, _ in self.rules)
