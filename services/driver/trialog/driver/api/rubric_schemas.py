"""Shapes of the API's answers about rubrics, each with an example."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trialog.proto.canonical import digest
from trialog.proto.rubric import Criterion, Rubric

_AT = "2026-11-30T12:00:00.000000+00:00"
_NAME = "careful"

Scoring = Literal["holistic", "per_criterion", "check"]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RubricLine(_Shape):
    """A rubric's line in the list: its latest version."""

    name: str = Field(examples=[_NAME])
    version: int
    digest: str = Field(description="SHA-256 of the content; the same content is one version.")
    scoring: Scoring
    n_criteria: int
    built_in: bool = Field(description="It came with the program and cannot be changed.")
    created_at: datetime | None = Field(description="Null for one that is built in.")


class RubricPage(_Shape):
    """Rubrics in order of their names; ``next_cursor`` is null on the last page."""

    rubrics: list[RubricLine]
    next_cursor: str | None


class VersionLine(_Shape):
    """A version's line in the list of a rubric's versions."""

    version: int
    digest: str
    created_at: datetime | None


class RubricVersion(_Shape):
    """A version of a rubric, whole. It never changes."""

    name: str = Field(examples=[_NAME])
    version: int
    digest: str
    built_in: bool
    created_at: datetime | None
    rubric: Rubric = Field(description="Defaults included.")


class RubricPut(RubricVersion):
    """The version that a rubric which was put is, and the latest of its name."""

    added: bool = Field(description="False: the content was that version already.")
    latest: int


class RubricVersions(_Shape):
    """A rubric: its latest version whole, and a page of all of them, newest first."""

    name: str = Field(examples=[_NAME])
    built_in: bool
    latest: RubricVersion
    versions: list[VersionLine]
    next_cursor: str | None


class Side(_Shape):
    """One of two versions that are compared."""

    name: str
    version: int
    digest: str


class _Change(_Shape):
    from_: Any = Field(alias="from")
    to: Any


class FieldChange(_Change):
    """A field of a criterion that is another."""

    field: Literal["weight", "scale", "prompt", "check", "version"]


class CriterionChange(_Shape):
    """A criterion that both have, with what differs."""

    name: str
    fields: list[FieldChange]


class ScoringChange(_Shape):
    """Another way of scoring."""

    from_: Scoring = Field(alias="from")
    to: Scoring


class RubricDiff(_Shape):
    """What differs between two versions; names of rubrics do not count."""

    from_: Side = Field(alias="from")
    to: Side
    scoring: ScoringChange | None = Field(description="Null where it is the same.")
    added: list[Criterion]
    removed: list[Criterion]
    changed: list[CriterionChange]
    reordered: bool = Field(description="Criteria that both have stand in another order.")


_STYLE: dict[str, Any] = {"name": "style", "weight": 0.5, "scale": [1.0, 5.0], "prompt": "Clear?"}
_RIGHT: dict[str, Any] = {"name": "right", "weight": 2.0, "check": "correct"}


def _version(version: int, *criteria: dict[str, Any]) -> dict[str, Any]:
    rubric = Rubric.model_validate({"name": _NAME, "criteria": list(criteria)})
    return {
        "name": _NAME,
        "version": version,
        "digest": digest(rubric.content()),
        "built_in": False,
        "created_at": _AT,
        "rubric": rubric.model_dump(mode="json"),
    }


_FIRST, _SECOND = _version(1, _STYLE), _version(2, _RIGHT, _STYLE | {"weight": 1.0})


def _only(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: found[name] for name in names}


EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    RubricPage: {
        "rubrics": [
            _only(_SECOND, "name", "version", "digest", "built_in", "created_at")
            | {"scoring": "per_criterion", "n_criteria": 2}
        ],
        "next_cursor": None,
    },
    RubricVersion: _SECOND,
    RubricPut: _SECOND | {"added": True, "latest": 2},
    RubricVersions: {
        "name": _NAME,
        "built_in": False,
        "latest": _SECOND,
        "versions": [_only(each, "version", "digest", "created_at") for each in (_SECOND, _FIRST)],
        "next_cursor": None,
    },
    RubricDiff: {
        "from": _only(_FIRST, "name", "version", "digest"),
        "to": _only(_SECOND, "name", "version", "digest"),
        "scoring": None,
        "added": [_SECOND["rubric"]["criteria"][0]],
        "removed": [],
        "changed": [{"name": "style", "fields": [{"field": "weight", "from": 0.5, "to": 1.0}]}],
        "reordered": False,
    },
}
