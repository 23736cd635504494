"""What a judge is asked about a trial under a rubric, without a run."""

from __future__ import annotations

from typing import Any, NamedTuple

from trialog.judge.evidence import Evidence
from trialog.judge.scoring import request_of
from trialog.proto.keys import asked, model_of
from trialog.proto.rubric import Rubric
from trialog.proto.runspec import RunSpec

MODEL = model_of(RunSpec())
"""The model that a run asks unless told otherwise."""


class Question(NamedTuple):
    criterion: str
    request: dict[str, Any]

    @property
    def sent(self) -> dict[str, Any]:
        """The whole body, as a judge's server sees it."""
        return {"model": MODEL, **self.request}


def questions(rubric: Rubric, evidence: Evidence, seed: int | None = None) -> list[Question]:
    found = asked(rubric, evidence.trial_id, verified=evidence.verified, seed=seed)
    return [Question(one.criterion, request_of(one, evidence)) for one in found]
