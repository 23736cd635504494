"""The stand-in's formula against every golden score."""

import json
from typing import Any

import pytest
from support import golden
from trialog.judge.standin.reference import InvalidRequestError, judge, reference_reply, tokens
from trialog.proto.rubric import BUILT_IN

CASES = [(run, reward) for run in golden.RUBRICS for reward in golden.rewards(run)]


def request_for(run: str, reward: dict[str, Any], **changes: object) -> dict[str, Any]:
    rubric = BUILT_IN[golden.RUBRICS[run]]
    return {
        "trial_id": reward["trial_id"],
        "rubric": {"name": rubric.name, "weights": rubric.weights},
        "trajectory": golden.trajectory(run, reward["trial_id"]),
        "verified": reward["verified"],
        "seed": None,
    } | changes


@pytest.mark.parametrize(("run", "reward"), CASES, ids=lambda x: x if isinstance(x, str) else None)
def test_gives_the_golden_score(run: str, reward: dict[str, Any]) -> None:
    assert judge(request_for(run, reward)).score == reward["judge_score"]


def test_order_of_the_weights_does_not_matter() -> None:
    run, reward = CASES[1]
    forward = request_for(run, reward)
    weights = dict(reversed(forward["rubric"]["weights"].items()))
    backward = request_for(run, reward, rubric={"name": "v1", "weights": weights})
    assert judge(forward) == judge(backward)


def test_a_run_seed_changes_the_noise_only() -> None:
    run, reward = CASES[1]
    plain, seeded = judge(request_for(run, reward)), judge(request_for(run, reward, seed=7))
    assert plain.scores == seeded.scores
    assert plain.score != seeded.score
    assert abs(plain.score - seeded.score) <= 0.1


def test_a_criterion_is_scored_alone_and_alike_every_time() -> None:
    trajectory = golden.trajectory("clean", "s0-p0-n1")
    efficiency = {"criterion": {"name": "efficiency"}, "trajectory": trajectory}
    assert judge(efficiency).scores == {"efficiency": 1 - 3 / 8}
    manners = {
        "criterion": {"name": "manners", "prompt": "Was it polite?"},
        "trajectory": trajectory,
    }
    assert judge(manners) == judge(json.loads(json.dumps(manners)))
    assert 0 <= judge(manners).score < 1


def test_an_answer_may_hold_a_lone_surrogate() -> None:
    run, reward = CASES[0]
    trajectory = {"turns": [], "answer": "\ud800", "files": []}
    assert reference_reply(request_for(run, reward, trajectory=trajectory))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"trial_id": 3}, "trial_id"),
        ({"verified": "yes"}, "verified"),
        ({"rubric": {"name": "v1", "weights": {}}}, "weights"),
        ({"rubric": {"name": "v1", "weights": {"style": 1.0}}}, "style"),
        ({"rubric": {"name": "v1", "weights": {"correct": float("inf")}}}, "weights"),
        ({"trajectory": {"files": []}}, "turns"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_refuses_by_naming_the_field(changes: dict[str, Any], field: str) -> None:
    run, reward = CASES[1]
    with pytest.raises(InvalidRequestError, match=field):
        judge(request_for(run, reward, **changes))


def test_tokens_follow_the_length_of_the_canonical_text() -> None:
    assert tokens({"b": 1, "a": "xyz"}) == (len('{"a":"xyz","b":1}') // 4, 16)
    with pytest.raises(InvalidRequestError):
        tokens({"a": 2**60})
