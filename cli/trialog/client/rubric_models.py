"""Shapes of the driver's answers about rubrics, as typed dictionaries: the JSON itself."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Scoring = Literal["holistic", "per_criterion", "check"]


class RubricLine(TypedDict):
    """A rubric's line in the list: its latest version."""

    name: str
    version: int
    digest: str
    scoring: Scoring
    n_criteria: int
    built_in: bool
    created_at: str | None


class RubricPage(TypedDict):
    """A page of rubrics; ``next_cursor`` is None on the last."""

    rubrics: list[RubricLine]
    next_cursor: str | None


class Criterion(TypedDict):
    """One thing that is scored; ``scale`` is [low, high]."""

    name: str
    weight: float
    scale: list[float]
    prompt: str | None
    check: str | None
    version: str | None


class Rubric(TypedDict):
    """Criteria under a name, and how a judge is asked for their scores."""

    name: str
    scoring: Scoring
    criteria: list[Criterion]


class VersionLine(TypedDict):
    """A version's line in the list of a rubric's versions."""

    version: int
    digest: str
    created_at: str | None


class RubricVersion(TypedDict):
    """A version of a rubric, whole; ``created_at`` is None for one that is built in."""

    name: str
    version: int
    digest: str
    built_in: bool
    created_at: str | None
    rubric: Rubric


class RubricPut(RubricVersion):
    """The version that a rubric which was put is; ``added`` says whether that is new."""

    added: bool
    latest: int


class RubricVersions(TypedDict):
    """A rubric's latest version, and a page of all of them, newest first."""

    name: str
    built_in: bool
    latest: RubricVersion
    versions: list[VersionLine]
    next_cursor: str | None


class Side(TypedDict):
    """One of two versions that are compared."""

    name: str
    version: int
    digest: str


FieldChange = TypedDict("FieldChange", {"field": str, "from": Any, "to": Any})
ScoringChange = TypedDict("ScoringChange", {"from": Scoring, "to": Scoring})


class CriterionChange(TypedDict):
    """A criterion that both versions have, with what differs."""

    name: str
    fields: list[FieldChange]


RubricDiff = TypedDict(
    "RubricDiff",
    {
        "from": Side,
        "to": Side,
        "scoring": ScoringChange | None,
        "added": list[Criterion],
        "removed": list[Criterion],
        "changed": list[CriterionChange],
        "reordered": bool,
    },
)
