"""What somebody may have meant who wrote a name that is not known. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def meant(word: str, known: Iterable[str]) -> str:
    """Return the name that is nearest to a word, an empty text where none is near."""
    return next(iter(difflib.get_close_matches(word, list(known), 1)), "")


def hint(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean NAME?)``, or nothing where no name is near."""
    near = meant(word, known)
    return f" (did you mean {near}?)" if near else ""
