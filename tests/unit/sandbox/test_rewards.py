"""What reward files say: the format's outcome table, row by row, and its bounds."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trialog.sandbox.errors import TaskError
from trialog.sandbox.trials.rewards import (
    EMPTY,
    INVALID,
    MAX_REWARDS,
    NOT_FOUND,
    UNREADABLE,
    combined,
    counting,
    gate,
    parse,
)

REWARDS = [
    (b"1", {"reward": 1.0}),
    (b"1\n", {"reward": 1.0}),
    (b"  0.5 \n\n", {"reward": 0.5}),
    (b"17.5", {"reward": 17.5}),
    (b"-3", {"reward": -3.0}),
    (b"1e3", {"reward": 1000.0}),
    (b"1_0", {"reward": 10.0}),
    (b"-0.0", {"reward": 0.0}),
]
JSONS = [
    (b'{"reward": 1}', {"reward": 1.0}),
    (b'{"reward": true}', {"reward": 1.0}),
    (b'{"reward": false, "speed": 0.25}', {"reward": 0.0, "speed": 0.25}),
    (b'{"reward": 17.5}', {"reward": 17.5}),
    (b'{"a": -3, "a": 2}', {"a": 2.0}),
    (b"{}", {}),
    (b" \n{} ", {}),
]
NO_REWARDS = [
    (None, None, NOT_FOUND),
    (None, b"", EMPTY),
    (b"", None, EMPTY),
    (b"", b"1", EMPTY),
    (None, b"\n", UNREADABLE),
    (None, b"one", UNREADABLE),
    (None, b"1 2", UNREADABLE),
    (None, b"nan", UNREADABLE),
    (None, b"-inf", UNREADABLE),
    (None, b"1e999", UNREADABLE),
    (None, b"\xff\xfe1", UNREADABLE),
    (None, b"\xef\xbb\xbf1", UNREADABLE),
    (None, b"1\x00", UNREADABLE),
    (b"1", None, INVALID),
    (b"0.5", b"1", INVALID),
    (b"true", None, INVALID),
    (b'"1"', None, UNREADABLE),
    (b"null", None, UNREADABLE),
    (b"NaN", None, UNREADABLE),
    (b"Infinity", None, UNREADABLE),
    (b"[]", None, UNREADABLE),
    (b"[1]", None, UNREADABLE),
    (b'{"reward": [1]}', None, UNREADABLE),
    (b'{"reward": {"a": 1}}', None, UNREADABLE),
    (b'{"reward": null}', None, UNREADABLE),
    (b'{"reward": NaN}', None, UNREADABLE),
    (b'{"reward": 1e999}', None, UNREADABLE),
    (b'{"reward": "1"}', None, UNREADABLE),
    (b'{"reward": 1' + b"0" * 400 + b"}", None, UNREADABLE),
    (b'{"reward": 1' + b"0" * 5000 + b"}", None, UNREADABLE),
    (b"{'reward': 1}", None, UNREADABLE),
    (b'{"reward": 1} extra', b"1", UNREADABLE),
    (b"\xef\xbb\xbf{}", None, UNREADABLE),
    (b"[" * 20_000, None, UNREADABLE),
    (b'{"a":' * 20_000, None, UNREADABLE),
]


@pytest.mark.parametrize(("text", "found"), REWARDS)
def test_any_finite_number_is_a_reward_and_none_is_clamped(
    text: bytes, found: dict[str, float]
) -> None:
    assert parse(None, text) == found


@pytest.mark.parametrize(("content", "found"), JSONS)
def test_json_may_hold_several_rewards_and_is_read_first(
    content: bytes, found: dict[str, float]
) -> None:
    assert parse(content, None) == found
    assert parse(content, b"not a number") == found
    assert all(type(value) is float for value in parse(content, None).values())


@pytest.mark.parametrize(("in_json", "in_text", "name"), NO_REWARDS)
def test_what_is_no_reward_has_the_formats_name_and_is_no_zero(
    in_json: bytes | None, in_text: bytes | None, name: str
) -> None:
    with pytest.raises(TaskError) as caught:
        parse(in_json, in_text)
    assert caught.value.name == name
    assert caught.value.failure == "task"
    assert len(str(caught.value)) < 300


def test_more_rewards_than_fit_on_the_log_are_refused() -> None:
    fits = {f"r{n}": 1.0 for n in range(MAX_REWARDS)}
    assert parse(json.dumps(fits).encode(), None) == fits
    for many in ({f"r{n}": 1 for n in range(MAX_REWARDS + 1)}, {"x" * 2000: 1}):
        with pytest.raises(TaskError, match="limit"):
            parse(json.dumps(many).encode(), None)


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_whatever_is_written_is_rewards_or_an_error_by_name(in_json: bytes, in_text: bytes) -> None:
    """I11: no verdict is ever a score."""
    for first, second in ((in_json, in_text), (None, in_text)):
        try:
            found = parse(first, second)
        except TaskError as error:
            assert error.name in (EMPTY, INVALID, UNREADABLE)
        else:
            assert all(math.isfinite(value) for value in found.values())


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
    )
)
def test_json_counts_only_as_an_object_of_finite_numbers(value: object) -> None:
    is_rewards = isinstance(value, dict) and all(
        isinstance(each, int | float) and abs(each) < 1e308 for each in value.values()
    )
    if is_rewards:
        assert isinstance(value, dict)
        assert parse(json.dumps(value).encode(), None) == {k: float(v) for k, v in value.items()}
    elif not isinstance(value, dict) or any(
        not isinstance(each, int | float) or not math.isfinite(each) for each in value.values()
    ):
        with pytest.raises(TaskError):
            parse(json.dumps(value).encode(), None)


def test_the_reward_that_counts() -> None:
    assert counting({"reward": 0.25, "speed": 1.0}) == 0.25
    assert counting({"speed": 0.5}) == 0.5
    assert counting({"a": 1.0, "b": 0.0}) == 0.5
    assert counting({}) is None
    huge = {str(n): 1.5e308 for n in range(5)}
    assert counting(huge) == pytest.approx(1.5e308)
    assert combined([huge, huge], None) == pytest.approx(huge)


@pytest.mark.parametrize(
    ("found", "least", "holds"),
    [
        ({"reward": 1.0}, None, True),
        ({}, None, True),
        ({"reward": 0.5}, 0.5, True),
        ({"reward": 0.49}, 0.5, False),
        ({"speed": 1.0}, 0.5, False),
        ({}, -1.0, False),
        ({"a": 1.0, "b": 0.0}, {"a": 1.0}, True),
        ({"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 0.1}, False),
        ({"a": 1.0}, {"c": -5.0}, False),
        ({"a": 1.0}, {}, True),
    ],
)
def test_a_gate_lets_on_what_is_not_below_it(
    found: dict[str, float], least: float | dict[str, float] | None, holds: bool
) -> None:
    assert (gate(found, least) is None) == holds


def test_steps_come_to_their_mean_or_to_the_last() -> None:
    steps = [{"reward": 1.0, "speed": 0.5}, {"reward": 0.0}, {}]
    assert combined(steps, None) == {"reward": 1 / 3, "speed": 0.5 / 3}
    assert combined(steps, "mean") == combined(steps, None)
    assert combined(steps[:2], "final") == {"reward": 0.0}
    assert combined(steps, "final") == {}
    assert combined([], None) == {}
    assert combined([{}, {}], None) == {}
