"""A criterion's scale: sent to the judge, held against its reply, and its share counted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.asking import questions
from support.judging import TRIAL, Bench, Desk
from trialog.judge.evidence import Evidence
from trialog.judge.replies import read_reply
from trialog.judge.scoring import Verdict, judgment
from trialog.judge.standin.reference import InvalidRequestError, judge, reference_reply
from trialog.proto import events as ev
from trialog.proto.identity import call_key
from trialog.proto.keys import HOLISTIC
from trialog.proto.rubric import BUILT_IN, Criterion, Rubric
from trialog.spine.memory.blobs import MemoryBlobs
from trialog.spine.memory.log import MemoryLog
from trialog.spine.memory.store import MemoryStore

TRAJECTORY: dict[str, Any] = {
    "turns": [{"doc": 1, "found": False}, {"doc": 0, "found": True}],
    "answer": "x",
    "files": ["answer.txt"],
}
EVIDENCE = Evidence("s0-p0-n0", TRAJECTORY, True, 0, 2)
SCALED = Rubric(
    name="mine",
    criteria=(
        Criterion(name="right", weight=2.0, check="correct"),
        Criterion(name="style", weight=0.5, scale=(1.0, 5.0), prompt="Is it well written?"),
        Criterion(name="efficiency", weight=0.25),
    ),
)
HOLIST = Rubric(
    name="v1",
    scoring="holistic",
    criteria=(
        Criterion(name="correct", weight=1.0, scale=(-1.0, 1.0)),
        Criterion(name="efficiency", weight=0.3, scale=(0.0, 10.0)),
        Criterion(name="tidiness", weight=0.1),
    ),
)


def said(score: float, scores: dict[str, float]) -> bytes:
    return json.dumps({"score": score, "scores": scores}).encode()


def test_a_scale_is_sent_where_it_says_something() -> None:
    style, efficiency = questions(SCALED, EVIDENCE)
    assert style.request["criterion"] == {
        "name": "style",
        "prompt": "Is it well written?",
        "scale": [1.0, 5.0],
    }
    assert efficiency.request["criterion"] == {"name": "efficiency", "prompt": None}
    (whole,) = questions(HOLIST, EVIDENCE)
    rubric: Any = whole.request["rubric"]
    assert rubric["scales"] == {"correct": [-1.0, 1.0], "efficiency": [0.0, 10.0]}
    (plain,) = questions(BUILT_IN["v1"], EVIDENCE)
    rubric = plain.request["rubric"]
    assert "scales" not in rubric


@pytest.mark.parametrize("rubric", [SCALED, HOLIST], ids=["per_criterion", "holistic"])
def test_another_scale_is_another_call_and_only_that(rubric: Rubric) -> None:
    index = 1
    other = rubric.criteria[index].model_copy(update={"scale": (0.0, 9.0)})
    criteria = (*rubric.criteria[:index], other, *rubric.criteria[index + 1 :])
    changed = rubric.model_copy(update={"criteria": criteria})

    def keys(of: Rubric) -> dict[str, str]:
        return {
            each.criterion: call_key(model={}, request=each.request, trajectory_digest="t")
            for each in questions(of, EVIDENCE)
        }

    before, after = keys(rubric), keys(changed)
    assert {name for name in before if before[name] != after[name]} == {
        HOLISTIC if rubric is HOLIST else "style"
    }


@pytest.mark.parametrize(
    ("score", "valid"),
    [(1, True), (5, True), (3.5, True), (0.999, False), (5.001, False), (0, False), (-3, False)],
)
def test_a_reply_beyond_the_scale_is_no_verdict_and_never_clamped(score: float, valid: bool):
    style, _ = questions(SCALED, EVIDENCE)
    reading = read_reply(style.request, said(score, {"style": score}))
    assert (reading.valid, reading.score) == (valid, score if valid else None)
    # Either number counts: what is kept by criterion, and what enters the sum.
    assert read_reply(style.request, said(3, {"style": score})).valid is valid
    assert read_reply(style.request, said(score, {"style": 3})).valid is valid


@pytest.mark.parametrize(("score", "valid"), [(0, True), (1, True), (1.1, False), (-0.1, False)])
def test_without_one_the_scale_is_from_0_to_1(score: float, valid: bool) -> None:
    _, efficiency = questions(SCALED, EVIDENCE)
    assert read_reply(efficiency.request, said(score, {"efficiency": score})).valid is valid


@pytest.mark.parametrize(
    ("scores", "valid"),
    [
        ({"correct": -1, "efficiency": 10, "tidiness": 1}, True),
        ({"correct": -1.1, "efficiency": 10, "tidiness": 1}, False),
        ({"correct": 0, "efficiency": 10.1, "tidiness": 1}, False),
        ({"correct": 0, "efficiency": 5, "tidiness": 5}, False),
    ],
)
def test_a_holistic_reply_keeps_to_every_scale_and_its_sum_is_its_own(
    scores: dict[str, float], valid: bool
) -> None:
    (whole,) = questions(HOLIST, EVIDENCE)
    assert read_reply(whole.request, said(1234.5, scores)).valid is valid


def test_the_score_is_kept_as_it_came_and_its_share_is_counted() -> None:
    verdicts = {"style": Verdict(4.0, {}), "efficiency": Verdict(0.5, {})}
    made = judgment(SCALED, EVIDENCE, verdicts)
    assert made.scores == {"right": 1.0, "style": 4.0, "efficiency": 0.5}
    assert made.score == 2.0 + 0.5 * 0.75 + 0.25 * 0.5
    lowest = judgment(SCALED, EVIDENCE, verdicts | {"style": Verdict(1.0, {})})
    assert lowest.score == 2.0 + 0.25 * 0.5


def test_a_holistic_score_is_the_judges_whatever_the_scales() -> None:
    scores = {"correct": -1.0, "efficiency": 10.0, "tidiness": 1.0}
    made = judgment(HOLIST, EVIDENCE, {HOLISTIC: Verdict(0.7, scores)})
    assert (made.score, made.scores) == (0.7, scores)


def test_the_stand_in_answers_on_the_scale() -> None:
    style, efficiency = questions(SCALED, EVIDENCE)
    plain = judge(
        {**style.request, "criterion": {"name": "style", "prompt": "Is it well written?"}}
    )
    assert judge(style.request).score == 1 + 4 * plain.score
    assert judge(efficiency.request).score == 0.875
    scaled, reference = (judge(questions(r, EVIDENCE)[0].request) for r in (HOLIST, BUILT_IN["v1"]))
    assert scaled.scores == {"correct": 1.0, "efficiency": 8.75, "tidiness": 1.0}
    assert scaled.score == reference.score, "the sum is of shares"


@given(
    low=st.floats(-1e6, 1e6),
    width=st.floats(1e-9, 1e6),
    turns=st.integers(0, 12),
    name=st.sampled_from(["efficiency", "tidiness", "style"]),
)
def test_whatever_the_scale_the_stand_in_keeps_to_it(
    low: float, width: float, turns: int, name: str
) -> None:
    high = low + width
    if not low < high <= 1e6:
        return
    rubric = Rubric(name="mine", criteria=(Criterion(name=name, scale=(low, high)),))
    trajectory = TRAJECTORY | {"turns": [{"doc": 1, "found": False}] * turns}
    evidence = Evidence("s0-p0-n0", trajectory, False, None, turns)
    (call,) = questions(rubric, evidence)
    request = json.loads(json.dumps(call.request))
    reading = read_reply(request, reference_reply(request))
    assert reading.score is not None
    made = judgment(rubric, evidence, {name: Verdict(reading.score, reading.scores)})
    assert 0 <= made.score <= 1


@pytest.mark.parametrize("scale", [[1, 1], [5, 1], [0], [0, 1, 2], "01", ["a", "b"]])
def test_the_stand_in_refuses_a_scale_that_is_none(scale: Any) -> None:
    one = {"criterion": {"name": "style", "scale": scale}, "trajectory": TRAJECTORY}
    with pytest.raises(InvalidRequestError, match="scale"):
        judge(one)
    (whole,) = questions(HOLIST, EVIDENCE)
    rubric: Any = whole.request["rubric"]
    with pytest.raises(InvalidRequestError, match="scale"):
        judge({**whole.request, "rubric": rubric | {"scales": {"correct": scale}}})


async def test_a_reply_beyond_the_scale_is_recorded_without_a_score_and_asked_for_again() -> None:
    store, desk = MemoryStore(), Desk()
    judge = Bench(MemoryLog(store), MemoryBlobs(store), desk)
    rubric = Rubric(name="mine", criteria=(SCALED.criteria[1],))
    run = await judge.run(rubric=rubric.model_dump(mode="json"))
    await judge.verified(run)
    desk.replies = [said(5.5, {"style": 5.5}), said(4, {"style": 4})]
    assert await judge.judge(run) == "done"
    calls = await judge.recorded(run)
    assert [(call.valid, call.score, call.scores) for call in calls] == [
        (False, None, {}),
        (True, 4.0, {"style": 4.0}),
    ]
    (judged,) = await judge.facts(run, ev.Judged)
    assert (judged.trial_id, judged.scores) == (TRIAL, {"style": 4.0})
    assert (judged.score, judged.reward) == (0.5 * 0.75, 1.375)
