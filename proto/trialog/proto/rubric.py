"""A rubric: criteria with weights, and how a judge is asked for their scores."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo, model_validator

from trialog.proto.canonical import digest

RECORDED = {"recorded": True}  # validation context of what the log holds: it was let in once


def _storable(text: str, info: ValidationInfo) -> str:
    if "\0" in text and info.context is not RECORDED:
        raise ValueError("must not hold the character U+0000")  # Postgres has no text with it
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("must not hold half of a surrogate pair")
    return text


Prompt = Annotated[str, Field(max_length=20_000), AfterValidator(_storable)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
Weight = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class Criterion(BaseModel, frozen=True, extra="forbid", strict=True):
    """One thing that is scored: by a model's answer to a prompt, or by a deterministic check.

    ``version`` declares the version of a check's code; without one it is its source's digest.
    """

    name: Name
    weight: Weight = 1.0
    prompt: Prompt | None = None
    check: Literal["correct", "completed"] | None = None
    version: Annotated[str, Field(pattern=r"^[\w.+-]{1,64}$")] | None = None

    @model_validator(mode="after")
    def _asked_or_checked(self) -> Criterion:
        if self.prompt is not None and self.check is not None:
            raise ValueError("give a prompt or a check, not both")
        return self


def _not_empty(criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
    # A min_length would also count those that are left once the wrong ones are taken out.
    if not criteria:
        raise ValueError("should have at least one criterion")
    return criteria


class Rubric(BaseModel, frozen=True, extra="forbid", strict=True):
    """Criteria under a name. ``holistic``: one call for all; ``per_criterion``: one call each;
    ``check``: no call at all, every criterion is a deterministic check."""

    name: Name
    scoring: Literal["holistic", "per_criterion", "check"] = "per_criterion"
    # A judgment names each of them with its score, and an event is small. A list is no mistake.
    criteria: Annotated[
        tuple[Criterion, ...], Field(max_length=32, strict=False), AfterValidator(_not_empty)
    ] = Field(json_schema_extra={"minItems": 1})

    @model_validator(mode="after")
    def _sound(self) -> Rubric:
        names = [criterion.name for criterion in self.criteria]
        if len(set(names)) != len(names):
            raise ValueError("two criteria have the same name")
        if self.scoring == "check" and any(c.check is None for c in self.criteria):
            raise ValueError("scoring by check needs a check in every criterion")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each criterion by its name."""
        return {criterion.name: criterion.weight for criterion in self.criteria}

    @property
    def digest(self) -> str:
        """Digest of the rubric's content, weights included."""
        return _digest_of(self)


@lru_cache(maxsize=256)
def _digest_of(rubric: Rubric) -> str:
    """Digest of a rubric; every judgment asks for it. A check's version is no part of it: it
    enters keys as its code's version."""
    content = rubric.model_dump(mode="json", exclude={"criteria": {"__all__": {"version"}}})
    return digest(content)


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
    )
}
