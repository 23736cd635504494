"""Hypothesis strategies for facts of every type, made from their own annotations."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from trialog.proto import events as ev

TEXT = st.text(max_size=12)
SURROGATES = st.text(st.characters(exclude_categories=()), max_size=12)


def facts_of(
    cls: type[ev.Fact], text: st.SearchStrategy[str] = TEXT, **fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[ev.Fact]:
    """Return a strategy for one type's facts; ``fields`` stand in for what it would draw."""
    drawn = {field.name: _of(field.type, text) for field in msgspec.structs.fields(cls)}
    return st.builds(cls, **drawn | fields)


def facts(text: st.SearchStrategy[str] = TEXT) -> st.SearchStrategy[ev.Fact]:
    """Return a strategy for facts of any type."""
    return st.one_of(*(facts_of(cls, text) for cls in ev.TYPES.values()))


def _of(annotation: Any, text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    integers = st.integers(-(2**63), 2**63 - 1)
    floats = st.floats(allow_nan=False, allow_infinity=False)
    json = st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | floats | text,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=6,
    )
    provenance = st.builds(ev.Provenance, text, integers)
    known: dict[Any, st.SearchStrategy[Any]] = {
        str: text,
        bool: st.booleans(),
        int: integers,
        float: floats,
        int | None: st.none() | integers,
        float | None: st.none() | floats,
        str | None: st.none() | text,
        ev.Provenance | None: st.none() | provenance,
        list[ev.Provenance]: st.lists(provenance, max_size=3),
        ev.Bill: st.builds(ev.Bill, integers, integers, integers, integers),
        dict[str, str]: st.dictionaries(text, text, max_size=3),
        dict[str, Any] | None: st.none() | st.dictionaries(text, json, max_size=3),
        dict[str, float]: st.dictionaries(text, floats, max_size=3),
        dict[str, Any]: st.dictionaries(text, json, max_size=3),
    }
    return known[annotation]
