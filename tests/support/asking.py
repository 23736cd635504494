"""What a judge is asked about a trial under a rubric, without a run."""

from __future__ import annotations

from typing import NamedTuple

from trialog.judge.scoring import Evidence, request_of
from trialog.proto.keys import asked
from trialog.proto.rubric import Rubric


class Question(NamedTuple):
    criterion: str
    request: dict[str, object]


def questions(rubric: Rubric, evidence: Evidence, seed: int | None = None) -> list[Question]:
    found = asked(rubric, evidence.trial_id, verified=evidence.verified, seed=seed)
    return [Question(one.criterion, request_of(one, evidence)) for one in found]
