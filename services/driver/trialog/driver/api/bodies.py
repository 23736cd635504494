"""Checks a JSON text for what a parser takes without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast


class _Object(list[tuple[str, Any]]):
    """The pairs of a JSON object, those whose key came before included."""


def mistakes(text: bytes) -> list[tuple[str, str]]:
    """Return what is wrong with a JSON text as (dotted path, message).

    That is: no object at the top, a key given twice, half of a surrogate pair. Nothing is said of
    what is no JSON: the parser that comes next has better words for it.
    """
    try:
        # Numbers are left unread: a long one is slow, and the parser that comes next judges it.
        found = json.loads(text.decode(), object_pairs_hook=_Object, parse_int=str, parse_float=str)
        if not isinstance(found, _Object):
            return [("", "the body must be an object")]
        return list(_walk(found, ()))
    except (ValueError, RecursionError):
        return []


def _walk(found: Any, place: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(found, str) and any("\ud800" <= character <= "\udfff" for character in found):
        yield ".".join(place), "holds half of a surrogate pair"
    elif isinstance(found, _Object):
        seen: set[str] = set()
        for key, value in found:
            below = (*place, key.encode(errors="backslashreplace").decode())
            if key in seen:
                yield ".".join(below), "the key is given twice"
            seen.add(key)
            yield from _walk(key, below)
            yield from _walk(value, below)
    elif isinstance(found, list):
        for index, value in enumerate(cast(list[Any], found)):
            yield from _walk(value, (*place, str(index)))
