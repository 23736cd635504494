"""Docker's wildcards, matched in time linear in the path: a pattern is anybody's text.

A regular expression of it may look back for ever, and holds the interpreter's lock meanwhile. Here
every place that a match may have come to is a bit of one number, moved on by each character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

MAX_CHARS = 1_000
_KEPT_CHARS = 512
_FOLDERS, _ANY, _NAME = "**/", "**", "*"
_LOOPS = (_FOLDERS, _ANY, _NAME)

Accepts = Callable[[str], bool]


class Wildcards:
    """One pattern: ``*`` and ``?`` stay within a name, ``**`` stands for any number of folders."""

    def __init__(self, pattern: str) -> None:
        """Raises ValueError for what is no pattern, or too long to be one."""
        if len(pattern) > MAX_CHARS:
            raise ValueError(f"it is longer than {MAX_CHARS} characters")
        self._accepts: list[Accepts] = []
        self._rests: list[Accepts] = []
        self._skips = self._enters = 0
        for part in _collapsed(_parts(pattern)):
            self._add(part)
        self._end = 1 << len(self._accepts)
        self._kept: dict[str, tuple[int, int]] = {}

    def _add(self, part: str | Accepts) -> None:
        """Add what moves a place on by a character, and what lets it stay where it is."""
        here = 1 << len(self._accepts)
        if part == _FOLDERS:
            # Before it, either nothing or the first of some folders; a slash ends the last.
            self._enters |= here
            self._accepts += [_never, _slash]
            self._rests += [_never, _always]
        elif part in (_ANY, _NAME):
            self._skips |= here
            self._accepts.append(_never)
            self._rests.append(_always if part == _ANY else _no_slash)
        elif not isinstance(part, str):
            self._accepts.append(part)
            self._rests.append(_never)

    def matches(self, path: str) -> bool:
        """Tell whether a path matches, or a folder that it is in."""
        places = self._entered(1)
        for char in path:
            if char == "/" and places & self._end:
                return True
            moved, rested = self._moves(char)
            places = self._entered((places & moved) << 1 | places & rested)
            if not places:
                return False
        return bool(places & self._end)

    def _entered(self, places: int) -> int:
        entered = places & self._enters
        return places | (places & self._skips) << 1 | entered << 1 | entered << 2

    def _moves(self, char: str) -> tuple[int, int]:
        """Return the places that a character moves on from, and those where it may stay."""
        found = self._kept.get(char)
        if found is None:
            found = _bits(self._accepts, char), _bits(self._rests, char)
            if len(self._kept) < _KEPT_CHARS:
                self._kept[char] = found
        return found


def _bits(tests: list[Accepts], char: str) -> int:
    return sum(1 << at for at, test in enumerate(tests) if test(char))


def _parts(pattern: str) -> Iterator[str | Accepts]:
    """Yield single characters, what stands for one of several, and what stands for any number."""
    at = 0
    while at < len(pattern):
        loop = next((loop for loop in _LOOPS if pattern.startswith(loop, at)), None)
        if loop is not None:
            at += len(loop)
            yield loop
            continue
        char = pattern[at]
        at += 1
        if char == "[" and (end := pattern.find("]", at)) > 0:
            yield _one_of(pattern[at:end])
            at = end + 1
        elif char == "\\" and at < len(pattern):
            yield pattern[at].__eq__
            at += 1
        else:
            yield _no_slash if char == "?" else char.__eq__


def _collapsed(parts: Iterator[str | Accepts]) -> list[str | Accepts]:
    """Make one of several in a row that stand for any number: it is the widest of them.

    Thus what follows one of them is never another, and is reached in one step.
    """
    found: list[str | Accepts] = []
    for part in parts:
        if found and isinstance(part, str) and isinstance(found[-1], str):
            found[-1] = _FOLDERS if part == found[-1] == _FOLDERS else _ANY
        else:
            found.append(part)
    return found


def _one_of(characters: str) -> Accepts:
    pattern = re.compile(f"[{characters}]")
    return lambda char: pattern.fullmatch(char) is not None


def _slash(char: str) -> bool:
    return char == "/"


def _no_slash(char: str) -> bool:
    return char != "/"


def _always(_: str) -> bool:
    return True


def _never(_: str) -> bool:
    return False
