"""From evidence and verdicts to rewards, against the golden runs and against bad verdicts."""

import math
from typing import Any

import pytest
from support import golden
from support.asking import questions
from trialog.judge.errors import MissingScoreError, NonFiniteScoreError
from trialog.judge.evidence import Evidence
from trialog.judge.scoring import Verdict, flakes, judgment
from trialog.judge.standin.reference import judge
from trialog.proto.keys import HOLISTIC
from trialog.proto.rubric import BUILT_IN, Criterion, Rubric


def evidence_of(run: str, reward: dict[str, Any]) -> Evidence:
    return Evidence(
        trial_id=reward["trial_id"],
        trajectory=golden.trajectory(run, reward["trial_id"]),
        verified=reward["verified"],
        found_doc=reward["found_doc"],
        n_turns=reward["n_turns"],
    )


CASES = [(run, reward) for run in golden.RUBRICS for reward in golden.rewards(run)]
EVIDENCE = evidence_of(*CASES[1])
PER_CRITERION = Rubric(
    name="mine",
    criteria=(
        Criterion(name="right", weight=2.0, check="correct"),
        Criterion(name="style", weight=0.5, prompt="Is it well written?"),
        Criterion(name="efficiency", weight=0.25),
    ),
)


@pytest.mark.parametrize(("run", "reward"), CASES, ids=lambda x: x if isinstance(x, str) else None)
def test_gives_the_golden_reward(run: str, reward: dict[str, Any]) -> None:
    rubric, evidence = BUILT_IN[golden.RUBRICS[run]], evidence_of(run, reward)
    (call,) = questions(rubric, evidence)
    assert call.criterion == HOLISTIC
    verdict = judge(call.request)
    made = judgment(rubric, evidence, {HOLISTIC: Verdict(verdict.score, verdict.scores)})
    assert (made.score, made.reward) == (reward["judge_score"], reward["reward"])


def test_a_check_needs_no_call() -> None:
    assert questions(BUILT_IN["instant"], EVIDENCE) == []
    made = judgment(BUILT_IN["instant"], EVIDENCE)
    assert (made.scores, made.score, made.reward) == ({"completed": 1.0}, 1.0, 2.0)


def test_per_criterion_asks_once_for_each_and_keeps_the_weights_to_itself() -> None:
    made = questions(PER_CRITERION, EVIDENCE)
    assert [call.criterion for call in made] == ["style", "efficiency"]
    heavier = PER_CRITERION.model_copy(
        update={
            "criteria": tuple(
                each.model_copy(update={"weight": 9.0}) for each in PER_CRITERION.criteria
            )
        }
    )
    assert questions(heavier, EVIDENCE) == made


def test_per_criterion_score_is_the_weighted_sum() -> None:
    verdicts = {"style": Verdict(0.5, {"style": 0.5}), "efficiency": Verdict(1.0, {})}
    made = judgment(PER_CRITERION, EVIDENCE, verdicts)
    assert made.scores == {"right": 1.0, "style": 0.5, "efficiency": 1.0}
    assert (made.score, made.reward) == (2.5, 3.5)


def test_a_check_in_a_holistic_rubric_is_not_asked_for() -> None:
    rubric = Rubric(
        name="v1",
        scoring="holistic",
        criteria=(
            Criterion(name="right", weight=2.0, check="correct"),
            Criterion(name="tidiness", weight=0.5, prompt="Tidy?"),
        ),
    )
    (call,) = questions(rubric, EVIDENCE)
    assert call.request["rubric"] == {
        "name": "v1",
        "weights": {"tidiness": 0.5},
        "prompts": {"tidiness": "Tidy?"},
    }
    made = judgment(rubric, EVIDENCE, {HOLISTIC: Verdict(0.4, {"tidiness": 0.8})})
    assert (made.scores, made.score) == ({"right": 1.0, "tidiness": 0.8}, 2.4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_never_becomes_a_reward(bad: float) -> None:
    with pytest.raises(NonFiniteScoreError):
        judgment(BUILT_IN["v1"], EVIDENCE, {HOLISTIC: Verdict(bad, {})})
    scores = {"correct": bad, "efficiency": 1.0, "tidiness": 1.0}
    with pytest.raises(NonFiniteScoreError):
        judgment(BUILT_IN["v1"], EVIDENCE, {HOLISTIC: Verdict(1.0, scores)})


def test_a_sum_that_overflows_never_becomes_a_reward() -> None:
    verdicts = {"style": Verdict(1e308, {}), "efficiency": Verdict(1e308, {})}
    rubric = PER_CRITERION.model_copy(
        update={
            "criteria": tuple(c.model_copy(update={"weight": 10.0}) for c in PER_CRITERION.criteria)
        }
    )
    with pytest.raises(NonFiniteScoreError):
        judgment(rubric, EVIDENCE, verdicts)


def test_a_missing_score_is_not_a_zero() -> None:
    with pytest.raises(MissingScoreError, match="style"):
        judgment(PER_CRITERION, EVIDENCE, {"efficiency": Verdict(1.0, {})})
    with pytest.raises(MissingScoreError, match="tidiness"):
        verdict = Verdict(1.0, {"correct": 1.0, "efficiency": 1.0})
        judgment(BUILT_IN["v1"], EVIDENCE, {HOLISTIC: verdict})


def test_the_digest_is_of_the_judgment_alone() -> None:
    verdicts = {"style": Verdict(0.5, {}), "efficiency": Verdict(1.0, {})}
    one, again = (judgment(PER_CRITERION, EVIDENCE, verdicts) for _ in range(2))
    other = judgment(PER_CRITERION, EVIDENCE, verdicts | {"style": Verdict(0.25, {})})
    assert one == again
    assert one.digest != other.digest


@pytest.mark.parametrize("run", golden.RUBRICS)
def test_flakes_as_in_the_golden_runs(run: str) -> None:
    rate = 0.0 if run == "clean" else 0.3
    trials = golden.RUNS[run]["trajectories"]
    assert [t for t in sorted(trials) if flakes(t, 0, rate)] == golden.RUNS[run]["judge_retried"]
    assert not any(flakes(t, 1, 1.0) for t in trials)
