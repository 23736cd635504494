"""Rubrics: scales, what a digest holds, and how one is named."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError
from trialog.proto.rubric import BUILT_IN, UNIT, Criterion, Reference, Rubric, parse_reference


def rubric(*criteria: dict[str, Any], **fields: Any) -> Rubric:
    return Rubric.model_validate({"name": "mine", "criteria": list(criteria)} | fields)


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("v1", "a6c70612e7f0fe404c5862c4c462d1ef252d1a924f4cf860e95ecd206281af53"),
        ("v2-efficiency", "670f5fa8f01f024a73ae14e56e3ab5142d66e44efa0b307201182ee7ab8d07d1"),
        ("instant", "62fc68256ea57d522268827aa7e72e687a351449b02c1781312327eeccdae422"),
    ],
)
def test_a_field_that_came_later_changes_no_older_digest(name: str, digest: str) -> None:
    """What is judged under it would be judged anew by every fork."""
    assert BUILT_IN[name].digest == digest


@pytest.mark.parametrize("scale", [[0, 1], [0.0, 1.0], [-0.0, 1]])
def test_the_default_scale_may_be_written_out(scale: list[float]) -> None:
    plain, written = rubric({"name": "a"}), rubric({"name": "a", "scale": scale})
    assert (written.digest, written.content()) == (plain.digest, plain.content())


def test_a_scale_is_part_of_the_digest_and_survives_the_log() -> None:
    scaled = rubric({"name": "a", "scale": [1, 5]})
    assert scaled.digest != rubric({"name": "a"}).digest
    assert scaled.criteria[0].scale == (1.0, 5.0)
    for text in (scaled.model_dump_json(), json.dumps(scaled.content())):
        assert Rubric.model_validate_json(text) == scaled


@pytest.mark.parametrize(
    "scale",
    [
        [1, 1],
        [5, 1],
        [0],
        [0, 1, 2],
        [],
        7,
        "01",
        None,
        ["0", "1"],
        [False, True],
        [0, math.nan],
        [0, math.inf],
        [-math.inf, 0],
        [0, 1e300],
    ],
)
def test_a_scale_that_nothing_lies_on_is_refused(scale: Any) -> None:
    for read in (
        lambda: Criterion.model_validate({"name": "a", "scale": scale}),
        lambda: Criterion.model_validate_json(json.dumps({"name": "a", "scale": scale})),
    ):
        with pytest.raises(ValidationError) as refused:
            read()
        assert {error["loc"][0] for error in refused.value.errors()} == {"scale"}


def test_a_check_has_no_scale() -> None:
    assert Criterion(name="a", check="correct", scale=UNIT).scale == UNIT
    with pytest.raises(ValidationError, match="leave its scale out"):
        Criterion(name="a", check="correct", scale=(0.0, 2.0))


@pytest.mark.parametrize(
    ("scale", "score", "share"),
    [
        ((0.0, 1.0), 0.1 + 0.2, 0.1 + 0.2),
        ((0.0, 1.0), 1 / 3, 1 / 3),
        ((1.0, 5.0), 1.0, 0.0),
        ((1.0, 5.0), 4.0, 0.75),
        ((1.0, 5.0), 5.0, 1.0),
        ((-1.0, 1.0), 0.0, 0.5),
    ],
)
def test_a_share_is_the_way_up_the_scale(
    scale: tuple[float, float], score: float, share: float
) -> None:
    assert Criterion(name="a", scale=scale).share(score) == share


def test_content_tells_versions_of_checks_apart_and_a_digest_does_not() -> None:
    one, other = (rubric({"name": "a", "check": "correct", "version": v}) for v in ("1", "2"))
    assert one.digest == other.digest
    assert one.content() != other.content()


def test_two_criteria_of_one_name_are_named() -> None:
    with pytest.raises(ValidationError, match="same name: b, c") as refused:
        rubric(*({"name": name} for name in "abcbcc"))
    assert [error["loc"] for error in refused.value.errors()] == [("criteria",)]


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("mine", Reference("mine")),
        ("mine@1", Reference("mine", 1)),
        ("v2-efficiency@12", Reference("v2-efficiency", 12)),
        ("7", Reference("7")),
    ],
)
def test_a_reference_is_read_and_written(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference
    assert str(reference) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "@", "@1", "mine@", "mine@0", "mine@01", "mine@-1", "mine@x", "mine@1@2", "Mine"),
        *("mine@\u0661", "mine\n", "mine@1\n", "a b", "../x", "x" * 41, "mine@" + "9" * 10, "\0"),
    ],
)
def test_what_names_no_rubric_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected NAME or NAME@VERSION"):
        parse_reference(text)
