"""From a judge's replies to a reward. Pure. What is asked is said in proto/keys.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from trialog.judge.checks import completed, correct
from trialog.judge.errors import MissingScoreError, NonFiniteScoreError
from trialog.judge.evidence import Evidence
from trialog.proto.canonical import digest
from trialog.proto.keys import HOLISTIC, Asked
from trialog.proto.rubric import Rubric
from trialog.proto.seeds import generator


class Call(NamedTuple):
    """One call to make: the criterion it is for (``*`` for a whole rubric), its key, and what is
    sent."""

    criterion: str
    key: str
    request: dict[str, Any]


class Verdict(NamedTuple):
    """A valid reply: the score in all, and by criterion."""

    score: float
    scores: Mapping[str, float]


class Judgment(msgspec.Struct, frozen=True):
    """A trial's end. ``digest`` leaves out run, provenance, latency and cost."""

    scores: dict[str, float]
    score: float
    reward: float
    digest: str


def request_of(asked: Asked, evidence: Evidence) -> dict[str, Any]:
    """Return what is sent to the judge: what is asked, and the trajectory it is asked of."""
    return {**asked.request, "trajectory": evidence.trajectory}


def checked(rubric: Rubric, evidence: Evidence) -> dict[str, float]:
    """Return the scores of a rubric's deterministic checks (judge/checks/), 0.0 or 1.0 each."""
    known = {"correct": correct.score, "completed": completed.score}
    return {
        each.name: known[each.check](evidence) for each in rubric.criteria if each.check is not None
    }


def judgment(
    rubric: Rubric, evidence: Evidence, verdicts: Mapping[str, Verdict] | None = None
) -> Judgment:
    """Return the end of a trial from the verdicts on its calls, by ``Call.criterion``.

    score = the holistic verdict's score, or the sum of weight x share over the rubric's criteria in
    their order, with the checks' part added. A share is a score's way up its scale, 0 to 1; the
    scores by criterion are kept as they came. reward = round(correct + score, 3), where correct
    is 1 when verified, else 0; of a task its verifier's reward + score, as it is. Raises
    MissingScoreError, NonFiniteScoreError: what has no finite score has no reward.
    """
    verdicts = verdicts or {}
    scores = checked(rubric, evidence)
    score = 0.0
    if rubric.scoring == "holistic" and len(scores) < len(rubric.criteria):
        whole = _of(verdicts, HOLISTIC)
        score = _finite(HOLISTIC, whole.score)
        in_score = set(scores)
        scores |= whole.scores
    else:
        in_score = set(rubric.weights)
        asked = [each.name for each in rubric.criteria if each.check is None]
        scores |= {name: _of(verdicts, name).score for name in asked}
    for criterion in rubric.criteria:
        value = _finite(criterion.name, scores.get(criterion.name))
        if criterion.name in in_score:
            score += criterion.weight * criterion.share(value)
    score = _finite("the weighted sum", score)
    reward = _finite("the reward", _reward(evidence, score))
    ordered = {name: scores[name] for name in rubric.weights}
    return Judgment(ordered, score, reward, _digest(evidence, ordered, score, reward))


def flakes(trial_id: str, attempt: int, rate: float, run_seed: int | None = None) -> bool:
    """Return whether judging a trial is to fail after its call was recorded.

    On attempt 0 only, when ``Random(seed("flake", trial)).random()`` is below the rate.
    """
    return attempt == 0 and generator("flake", trial_id, run_seed=run_seed).random() < rate


def _reward(evidence: Evidence, score: float) -> float:
    if evidence.reward is not None:
        return evidence.reward + score
    return round(float(evidence.verified) + score, 3)


def _of(verdicts: Mapping[str, Verdict], name: str) -> Verdict:
    if name not in verdicts:
        raise MissingScoreError(f"no valid reply for criterion {name}")
    return verdicts[name]


def _finite(name: str, value: float | None) -> float:
    if value is None:
        raise MissingScoreError(f"no score for criterion {name}")
    if not math.isfinite(value):
        raise NonFiniteScoreError(f"{name} is {value}")
    return value


def _digest(evidence: Evidence, scores: dict[str, float], score: float, reward: float) -> str:
    return digest(
        {
            "trial_id": evidence.trial_id,
            "scores": scores,
            "score": score,
            "reward": reward,
            "verified": evidence.verified,
            "found_doc": evidence.found_doc,
            "n_turns": evidence.n_turns,
        }
    )
