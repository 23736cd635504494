"""A rubric: criteria with weights, and how a judge is asked for their scores."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo, model_validator

from trialog.proto.canonical import digest

RECORDED = {"recorded": True}  # validation context of what the log holds: it was let in once
UNIT: Final = (0.0, 1.0)
MAX_BYTES: Final = 100_000
"""Most bytes of a kept rubric: a run that holds it still fits the log (spine/log.py)."""
_NAME: Final = "[a-z0-9][a-z0-9._-]{0,39}"
_REFERENCE: Final = re.compile(f"({_NAME})(?:@([1-9][0-9]{{0,8}}))?")


def _storable(text: str, info: ValidationInfo) -> str:
    if "\0" in text and info.context is not RECORDED:
        raise ValueError("must not hold the character U+0000")  # Postgres has no text with it
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("must not hold half of a surrogate pair")
    return text


def _rising(scale: tuple[float, float]) -> tuple[float, float]:
    if scale[0] >= scale[1]:
        raise ValueError("should be [low, high], low below high")
    return scale


Prompt = Annotated[str, Field(max_length=20_000), AfterValidator(_storable)]
Name = Annotated[str, Field(pattern=f"^{_NAME}$")]
Weight = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Bound = Annotated[float, Field(ge=-1_000_000, le=1_000_000, allow_inf_nan=False)]
# A list is no mistake here, as with the criteria below.
Scale = Annotated[tuple[Bound, Bound], Field(strict=False), AfterValidator(_rising)]


class Criterion(BaseModel, frozen=True, extra="forbid", strict=True):
    """One thing that is scored: by a model's answer to a prompt, or by a deterministic check.

    ``scale`` is [low, high], the ends included: a judge's score lies on it, and enters the weighted
    sum as its share of the way from low to high. ``version`` declares the version of a check's
    code; without one it is its source's digest.
    """

    name: Name
    weight: Weight = 1.0
    scale: Scale = UNIT
    prompt: Prompt | None = None
    check: Literal["correct", "completed"] | None = None
    version: Annotated[str, Field(pattern=r"^[\w.+-]{1,64}$")] | None = None

    @model_validator(mode="after")
    def _asked_or_checked(self) -> Criterion:
        if self.prompt is not None and self.check is not None:
            raise ValueError("give a prompt or a check, not both")
        if self.check is not None and self.scale != UNIT:
            raise ValueError("a check scores 0 or 1: leave its scale out")
        return self

    def share(self, score: float) -> float:
        """Return how far up its scale a score is, 0 to 1; on the scale [0, 1] the score itself."""
        low, high = self.scale
        return (score - low) / (high - low)


def _told_apart(criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
    # A min_length would also count those that are left once the wrong ones are taken out.
    if not criteria:
        raise ValueError("should have at least one criterion")
    names = [criterion.name for criterion in criteria]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two criteria have the same name: {', '.join(twice)}")
    return criteria


class Rubric(BaseModel, frozen=True, extra="forbid", strict=True):
    """Criteria under a name. ``holistic``: one call for all; ``per_criterion``: one call each;
    ``check``: no call at all, every criterion is a deterministic check."""

    name: Name
    scoring: Literal["holistic", "per_criterion", "check"] = "per_criterion"
    # A judgment names each of them with its score, and an event is small. A list is no mistake.
    criteria: Annotated[
        tuple[Criterion, ...], Field(max_length=32, strict=False), AfterValidator(_told_apart)
    ] = Field(json_schema_extra={"minItems": 1})

    @model_validator(mode="after")
    def _sound(self) -> Rubric:
        if self.scoring == "check" and any(c.check is None for c in self.criteria):
            raise ValueError("scoring by check needs a check in every criterion")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each criterion by its name."""
        return {criterion.name: criterion.weight for criterion in self.criteria}

    @property
    def digest(self) -> str:
        """Digest of what a judgment depends on, weights included. A check's version is no part of
        it: it enters keys as its code's version."""
        return _digest_of(self)

    def content(self) -> dict[str, Any]:
        """Return all of the rubric as JSON. What came to rubrics later is left out where it says
        nothing, so that a rubric which was there before keeps its digest."""
        content = self.model_dump(mode="json")
        for criterion in content["criteria"]:
            if criterion["scale"] == list(UNIT):
                del criterion["scale"]
            if criterion["version"] is None:
                del criterion["version"]
        return content


@lru_cache(maxsize=256)
def _digest_of(rubric: Rubric) -> str:
    """Digest of a rubric; every judgment asks for it."""
    content = rubric.content()
    for criterion in content["criteria"]:
        criterion.pop("version", None)
    return digest(content)


class Reference(NamedTuple):
    """A rubric by its name; without a version it is the latest."""

    name: str
    version: int | None = None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}@{self.version}"


def parse_reference(text: str) -> Reference:
    """Return what NAME or NAME@VERSION means. Raises ValueError."""
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text[:60]!r} names no rubric: expected NAME or NAME@VERSION, such as mine@2"
        )
    return Reference(found[1], None if found[2] is None else int(found[2]))


def _reference(name: str, correct: float, efficiency: float, tidiness: float) -> Rubric:
    weights: dict[str, Any] = {
        "correct": correct,
        "efficiency": efficiency,
        "tidiness": tidiness,
    }
    criteria = tuple(Criterion(name=key, weight=weight) for key, weight in weights.items())
    return Rubric(name=name, scoring="holistic", criteria=criteria)


BUILT_IN: dict[str, Rubric] = {
    rubric.name: rubric
    for rubric in (
        _reference("v1", 1.0, 0.3, 0.1),
        _reference("v2-efficiency", 1.0, 1.0, 0.5),
        Rubric(
            name="instant",
            scoring="check",
            criteria=(Criterion(name="completed", check="completed"),),
        ),
        # Adds nothing: a trial's reward is what its task's verifier said.
        Rubric(
            name="task",
            scoring="check",
            criteria=(Criterion(name="completed", weight=0.0, check="completed"),),
        ),
    )
}
