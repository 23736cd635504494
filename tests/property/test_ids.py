"""Ids: one spelling each, ordered as text, and nothing else taken for one."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trialog.proto.ids import (
    InvalidIdError,
    TrialName,
    check_run_id,
    event_id,
    parse_trial_address,
    parse_trial_id,
    run_id_from,
)

NUMBERS = st.integers(0, 10**9 - 1)
NAMES = st.builds(TrialName, NUMBERS, NUMBERS, NUMBERS)


@given(NAMES)
def test_a_trial_id_is_read_back_as_its_parts(name: TrialName) -> None:
    assert parse_trial_id(str(name)) == name


@given(st.text() | st.from_regex(r"s\d{1,10}-p\d{1,10}-n\d{1,10}", fullmatch=True))
def test_a_text_is_a_trial_id_only_in_its_one_spelling(text: str) -> None:
    with contextlib.suppress(InvalidIdError):
        assert str(parse_trial_id(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s0-p0",
        "s00-p0-n0",
        "s0-p0-n01",
        "s-1-p0-n0",
        "s0-p0-n0 ",
        "s0-p0-n0\n",
        "S0-P0-N0",
        "s0-p0-n1234567890",
        "s\u0663-p0-n0",
        "s\u00b2-p0-n0",
        "../s0-p0-n0",
    ],
)
def test_no_other_spelling_is_a_trial_id(text: str) -> None:
    with pytest.raises(InvalidIdError):
        parse_trial_id(text)


@given(st.lists(NAMES))
def test_the_order_of_trial_ids_is_that_of_their_text_everywhere(names: list[TrialName]) -> None:
    """As Python orders text, and Postgres under the collation C."""
    ids = [str(name) for name in names]
    assert sorted(ids) == sorted(ids, key=lambda text: text.encode())
    assert sorted(["s0-p10-n0", "s0-p2-n0"]) == ["s0-p10-n0", "s0-p2-n0"]


@given(st.binary())
def test_a_run_id_is_valid_and_follows_from_its_entropy(entropy: bytes) -> None:
    assert check_run_id(run_id_from(entropy)) == run_id_from(entropy)


@given(st.binary(), st.binary())
def test_different_entropy_is_a_different_run(one: bytes, other: bytes) -> None:
    assert (run_id_from(one) == run_id_from(other)) == (one == other)


@given(st.text())
def test_no_other_text_is_a_run_id_or_address(text: str) -> None:
    for check in (check_run_id, parse_trial_address):
        with pytest.raises(InvalidIdError):
            check(text)


@given(st.binary(), NAMES)
def test_an_address_is_a_run_and_a_trial(entropy: bytes, name: TrialName) -> None:
    run_id = run_id_from(entropy)
    assert parse_trial_address(f"{run_id}/{name}") == (run_id, str(name))


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.text()), unique=True, max_size=8))
def test_an_event_id_belongs_to_one_slot_of_one_run(places: list[tuple[str, str]]) -> None:
    ids = {event_id(run, slot) for run, slot in places}
    assert len(ids) == len(places)
    assert ids == {event_id(run, slot) for run, slot in places}
