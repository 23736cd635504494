"""What counts as a verdict, and what never does."""

import json

import pytest
from trialog.judge.replies import Prices, Reading, read_reply

WHOLE = {"rubric": {"name": "v1", "weights": {"correct": 1.0, "tidiness": 0.1}}}
ONE = {"criterion": {"name": "manners", "prompt": None}}


def test_reads_a_whole_verdict() -> None:
    raw = json.dumps(
        {
            "score": 1,
            "scores": {"tidiness": 0.5, "correct": 1},
            "usage": {"prompt_tokens": 9, "completion_tokens": 2},
        }
    ).encode()
    reading = read_reply(WHOLE, raw)
    assert reading == Reading(1.0, {"correct": 1.0, "tidiness": 0.5}, 9, 2)
    assert reading.valid


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"I would give this an 8.",
        b'{"score": 1, "scores": {"manners": 1}',
        b'{"score": NaN, "scores": {"manners": 1}}',
        b'{"score": 1, "scores": {"manners": NaN}}',
        b'{"score": 1e999, "scores": {"manners": 1}}',
        b'{"score": -Infinity, "scores": {"manners": 1}}',
        b'{"score": ' + b"9" * 400 + b', "scores": {"manners": 1}}',
        b'{"score": ' + b"9" * 5000 + b', "scores": {"manners": 1}}',
        b'{"score": true, "scores": {"manners": 1}}',
        b'{"score": "1", "scores": {"manners": 1}}',
        b'{"score": null, "scores": {"manners": 1}}',
        b'{"scores": {"manners": 1}}',
        b'{"score": 1}',
        b'{"score": 1, "scores": {}}',
        b'{"score": 1, "scores": {"style": 1}}',
        b'{"score": 1, "scores": {"manners": 1, "style": 1}}',
        b'{"score": 1, "scores": [1]}',
        b'{"score": 1, "scores": {"manners": null}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_anything_else_is_no_score_at_all(raw: bytes) -> None:
    reading = read_reply(ONE, raw)
    assert (reading.score, reading.scores, reading.valid) == (None, {}, False)
    assert reading.completion_tokens == len(raw) // 4


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": -1}, {"prompt_tokens": True}, 7])
def test_untold_tokens_are_estimated_never_free(usage: object) -> None:
    raw = json.dumps({"score": 1, "scores": {"manners": 1}, "usage": usage}).encode()
    reading = read_reply(ONE, raw)
    assert reading.valid
    assert reading.prompt_tokens == len('{"criterion":{"name":"manners","prompt":null}}') // 4
    assert reading.completion_tokens == len(raw) // 4


def test_cost_is_in_microdollars() -> None:
    prices = Prices(prompt_usd_per_mtok=3.0, completion_usd_per_mtok=15.0)
    assert prices.cost_microusd(Reading(1.0, {}, 1000, 100)) == 4500
