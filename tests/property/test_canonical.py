"""Canonical JSON: what RFC 8785 says, and that no two inputs share a text."""

from __future__ import annotations

import json
import math
import random
import unicodedata
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from trialog.proto.canonical import NotCanonicalError, canonical, canonical_text, digest

TEXT = st.text()  # hypothesis leaves surrogates out here
ANY_TEXT = st.text(st.characters(exclude_categories=()))
INTEGERS = st.integers(-(2**53), 2**53)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def values(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    scalars = st.none() | st.booleans() | INTEGERS | FLOATS | text
    return st.recursive(
        scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=12
    )


def exact(value: Any) -> Any:
    """Return what makes a JSON value itself: 1 and 1.0 are one number, True is none."""
    match value:
        case bool() | None:
            return ("constant", value)
        case int() | float():
            return ("number", float(value) + 0.0)  # JSON has one zero
        case str():
            return ("text", value)
        case list():
            return ("list", [exact(item) for item in value])
        case _:
            return ("object", {key: exact(item) for key, item in value.items()})


@given(values(TEXT))
def test_it_is_what_the_reference_package_makes(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        return  # stricter than we are about 2**53
    assert canonical(value) == expected


@given(FLOATS)
def test_every_double_is_written_as_the_reference_package_writes_it(number: float) -> None:
    assert canonical(number) == rfc8785.dumps(number)


@given(values(TEXT))
def test_it_reads_back_as_the_same_value(value: Any) -> None:
    assert exact(json.loads(canonical(value))) == exact(value)


@given(st.dictionaries(ANY_TEXT, INTEGERS), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(value: dict[str, int], order: random.Random) -> None:
    items = list(value.items())
    order.shuffle(items)
    assert canonical(dict(items)) == canonical(value)


def test_a_pair_of_surrogates_and_the_character_it_spells_are_two_keys_in_one_order() -> None:
    one = {"\U0001f600": 1, "\ud83d\ude00": 2}
    other = {"\ud83d\ude00": 2, "\U0001f600": 1}
    assert canonical(one) == canonical(other)
    assert canonical(one) != canonical({"\U0001f600": 2, "\ud83d\ude00": 1})


@given(INTEGERS)
def test_a_whole_number_is_one_number(number: int) -> None:
    assert canonical(number) == canonical(float(number))
    assert canonical({"n": [number]}) == canonical({"n": [float(number)]})


@given(ANY_TEXT, ANY_TEXT)
def test_two_texts_are_never_one(one: str, other: str) -> None:
    assert (canonical(one) == canonical(other)) == (one == other)
    assert (digest({one: 0}) == digest({other: 0})) == (one == other)


@given(ANY_TEXT)
def test_forms_of_unicode_are_kept_apart(text: str) -> None:
    """Two forms of a word are two prompts."""
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        normal = unicodedata.normalize(form, text)
        assert (canonical(normal) == canonical(text)) == (normal == text)


@given(values(ANY_TEXT), values(ANY_TEXT))
def test_two_values_are_never_one(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == (exact(one) == exact(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\0", ""),
        ("\0", "\\u0000"),
        ("\ud800", "\ufffd"),
        ("\ud800", "\\ud800"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\xe9", "e\u0301"),
        (True, 1),
        (False, 0),
        (None, "null"),
        ([], {}),
        ([[]], [[], []]),
        ({"a": None}, {}),
        ("1", 1),
        (1, 1.0000000000000002),
    ],
)
def test_the_treacherous_are_kept_apart(one: Any, other: Any) -> None:
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, 2**53 + 1, -(2**53) - 1, {1: 2}, {None: 1}, b"x", {1, 2}, 1j],
)
def test_what_json_cannot_carry_is_refused(value: Any) -> None:
    for wrapped in (value, [value], {"deep": [{"er": value}]}):
        with pytest.raises(NotCanonicalError):
            canonical(wrapped)


def test_a_tuple_is_a_list_and_one_zero_is_enough() -> None:
    assert canonical((1, "a")) == canonical([1, "a"])
    assert canonical(-0.0) == canonical(0) == b"0"


@given(values(ANY_TEXT), values(ANY_TEXT))
def test_a_part_that_is_written_out_stands_for_its_value(one: Any, other: Any) -> None:
    value = {"part": one, "list": [other, one]}
    written = {"part": canonical_text(one), "list": [canonical_text(other), canonical_text(one)]}
    assert canonical(written) == canonical(value)
