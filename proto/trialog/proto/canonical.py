"""Canonical JSON (RFC 8785), the text under every digest.

Two values with the same canonical text are the same input. Strings are never normalised: two
Unicode forms of a word are two prompts. A lone surrogate, which model output can hold and UTF-8
cannot, is kept as its three surrogate bytes, so it neither fails nor meets another string.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

_MAX_EXACT = 2**53
_KEPT_NAMES = 16


class NotCanonicalError(ValueError):
    """A value that JSON cannot carry exactly: NaN, an infinity, or an integer beyond 2**53."""


class CanonicalText(str):
    """A value's canonical text, to stand for the value inside another: a part that many inputs
    share is written once."""

    __slots__ = ()


def canonical_text(value: Any) -> CanonicalText:
    """Return the canonical text of a JSON value, as a part of other values.

    Raises NotCanonicalError as canonical does.
    """
    return CanonicalText(_text(value))


def canonical(value: Any) -> bytes:
    """Return the RFC 8785 text of a JSON value as UTF-8 bytes.

    Raises NotCanonicalError for NaN, infinities, integers beyond 2**53 and values that are not
    JSON (str, int, float, bool, None, list, tuple, dict with str keys).
    """
    return _text(value).encode("utf-8", "surrogatepass")


def digest(value: Any) -> str:
    """Return the hex SHA-256 of a JSON value's canonical text."""
    return hashlib.sha256(canonical(value)).hexdigest()


def bytes_digest(data: bytes) -> str:
    """Return the hex SHA-256 of bytes: the name of a blob."""
    return hashlib.sha256(data).hexdigest()


def written_out(value: Any) -> Any:
    """Return a JSON value that UTF-8 can hold: a lone surrogate in it is written as a person reads
    it, a backslash, u and four hex digits. For what is read, never for what a digest is made of:
    two values may become one.
    """
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {written_out(key): written_out(item) for key, item in value.items()}
        case list() | tuple():
            return [written_out(item) for item in value]
        case _:
            return value


def _text(value: Any) -> str:
    writer = _WRITERS.get(type(value))
    return writer(value) if writer else _other(value)


def _other(value: Any) -> str:
    """Write a value of a derived type, such as an enumeration of strings, as its base type's."""
    for base in (bool, str, int, float, list, tuple, dict):
        if isinstance(value, base):
            return _WRITERS[base](value)
    raise NotCanonicalError(f"{type(value).__name__} is not a JSON value")


def _integer(value: int) -> str:
    if abs(value) > _MAX_EXACT:
        raise NotCanonicalError(f"integer {value} is beyond 2**53 and would lose digits")
    return int.__repr__(value)


def _array(value: Sequence[Any]) -> str:
    return "[" + ",".join(map(_text, value)) + "]"


def _object(value: dict[Any, Any]) -> str:
    names = tuple(value)
    written = _kept_names(names) if len(names) <= _KEPT_NAMES else _names(names)
    return "{" + ",".join([name + _text(value[key]) for key, name in written]) + "}"


def _names(names: tuple[Any, ...]) -> list[tuple[str, str]]:
    """Return the keys of an object in order, each with its text and colon."""
    if not all(isinstance(key, str) for key in names):
        raise NotCanonicalError("an object's keys must be strings")
    # Among ASCII keys the order of characters is that of UTF-16 code units. A surrogate pair and
    # the character it spells tie there: the text itself decides.
    plain = all(map(str.isascii, names))
    keys = sorted(names) if plain else sorted(names, key=lambda key: (_utf16(key), key))
    return [(key, f"{encode_basestring(key)}:") for key in keys]


# Inputs of one kind have the same few keys, time and again.
_kept_names = lru_cache(maxsize=1024)(_names)


def _utf16(key: str) -> bytes:
    """RFC 8785 section 3.2.3: keys are ordered by their UTF-16 code units."""
    return key.encode("utf-16-be", "surrogatepass")


def _number(value: float) -> str:
    """Format a double as ECMAScript's Number::toString does (RFC 8785 section 3.2.2.3)."""
    if not math.isfinite(value):
        raise NotCanonicalError(f"{value} is not a JSON number")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # `point` places the decimal point: value = 0.digits x 10**point
    point = int(exponent or 0) + len(whole)
    if whole == "0":
        point -= len(fraction) - len(fraction.lstrip("0")) + 1
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if count > 1 else ""
    return f"{sign}{digits[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"


_WRITERS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    str: encode_basestring,
    int: _integer,
    float: _number,
    list: _array,
    tuple: _array,
    dict: _object,
    CanonicalText: str.__str__,
}
