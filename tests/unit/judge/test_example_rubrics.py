"""The rubrics in examples/ are scored as their comments say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import golden
from support.asking import questions
from trialog.cli.rubricfile import load_rubric_file
from trialog.judge.evidence import Evidence
from trialog.judge.replies import read_reply
from trialog.judge.scoring import Judgment, Verdict, judgment
from trialog.judge.standin.reference import reference_reply
from trialog.proto.keys import HOLISTIC
from trialog.proto.rubric import Rubric

FOLDER = Path(__file__).parents[3] / "examples" / "rubrics"
FILES = sorted(FOLDER.iterdir())
REWARDS = golden.rewards("clean")


def rubric(name: str, **changes: float) -> Rubric:
    """Return an example, with other weights by criterion."""
    found = load_rubric_file(str(FOLDER / f"{name}.yaml"))
    for criterion in found["criteria"]:
        criterion["weight"] = changes.get(criterion["name"], criterion["weight"])
    return Rubric.model_validate(found)


def evidence_of(reward: dict[str, Any]) -> Evidence:
    trajectory = golden.trajectory("clean", reward["trial_id"])
    known = (reward["verified"], reward["found_doc"], reward["n_turns"])
    return Evidence(reward["trial_id"], trajectory, *known)


def judged(rubric: Rubric, evidence: Evidence) -> Judgment:
    verdicts: dict[str, Verdict] = {}
    for one in questions(rubric, evidence):
        request = json.loads(json.dumps(one.request))
        reading = read_reply(request, reference_reply(request))
        assert reading.score is not None, one.criterion
        verdicts[one.criterion] = Verdict(reading.score, reading.scores)
    return judgment(rubric, evidence, verdicts)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_a_rubric_of_its_name_that_the_stand_in_scores(path: Path) -> None:
    found = rubric(path.stem)
    assert found.name == path.stem
    for reward in REWARDS:
        made = judged(found, evidence_of(reward))
        for criterion in found.criteria:
            low, high = criterion.scale
            assert low <= made.scores[criterion.name] <= high


def test_there_is_one_of_each_scoring() -> None:
    assert {rubric(path.stem).scoring for path in FILES} == {"holistic", "per_criterion", "check"}


def test_the_holistic_one_is_one_call_and_its_sum_the_judges() -> None:
    found = rubric("thrifty")
    for reward in REWARDS:
        evidence = evidence_of(reward)
        (call,) = questions(found, evidence)
        assert call.criterion == HOLISTIC
        made = judged(found, evidence)
        scores = made.scores
        total = scores["correct"] + 0.6 * scores["efficiency"] / 10 + 0.2 * scores["tidiness"]
        assert made.score == pytest.approx(total, abs=0.0506)


def test_the_per_criterion_one_asks_for_all_but_the_check_and_hides_the_weights() -> None:
    evidence = evidence_of(REWARDS[0])
    asked = questions(rubric("careful"), evidence)
    assert [each.criterion for each in asked] == ["search", "restraint", "honesty"]
    assert questions(rubric("careful", search=9.0, honesty=0.0), evidence) == asked


@pytest.mark.parametrize(("verified", "score"), [(True, 1.0), (False, 0.25)])
def test_the_one_of_checks_asks_nobody(verified: bool, score: float) -> None:
    found = rubric("finished")
    evidence = Evidence("s0-p0-n0", {}, verified, None, 3)
    assert questions(found, evidence) == []
    assert judged(found, evidence).score == score
