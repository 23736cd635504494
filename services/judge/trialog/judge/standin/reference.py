"""The reference judge's formula. Pure: the same request has the same score on any machine."""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

import msgspec

from trialog.proto.canonical import NotCanonicalError, canonical
from trialog.proto.rubric import UNIT
from trialog.proto.seeds import generator

ANSWER_FILE = "answer.txt"
NOISE = 0.05
REPLY_TOKENS = 16
BYTES_PER_TOKEN = 4


class InvalidRequestError(ValueError):
    """A request that this judge cannot score; the message names the field."""


class Trajectory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an agent did: its turns in order, its answer, and the files it wrote."""

    turns: list[dict[str, Any]]
    files: list[str]
    answer: str | None = None


class Weighted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rubric as a holistic judge sees it: weights by criterion; prompts, and scales that are not
    [0, 1], where it has some."""

    name: str
    weights: dict[str, float]
    prompts: dict[str, str] = {}
    scales: dict[str, tuple[float, float]] = {}


class HolisticRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole rubric in one call."""

    trial_id: str
    rubric: Weighted
    trajectory: Trajectory
    verified: bool
    seed: int | None = None


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One criterion: its name, what the model is told about it, and the scale of its score."""

    name: str
    prompt: str | None = None
    scale: tuple[float, float] = UNIT


class CriterionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One criterion in one call; its weight is nobody's business here."""

    criterion: Asked
    trajectory: Trajectory
    seed: int | None = None


class Verdict(msgspec.Struct, frozen=True):
    """A score in all and by criterion."""

    score: float
    scores: dict[str, float]


def judge(request: dict[str, Any]) -> Verdict:
    """Score a request. Raises InvalidRequestError.

    Holistic, of trial t under rubric r: correct = 1 when the verifier said so, else 0;
    efficiency = max(0, 1 - (turns - 1)/8); tidiness = 1 when answer.txt is the only file, else 0;
    score = their weighted sum + Random(seed("judge", t, r)).uniform(-0.05, 0.05), to 3 decimals.
    A single criterion has no noise; one the formula does not know is drawn from the request. Where
    a criterion has a scale, its score is so far up it; the sum is of shares, 0 to 1, all the same.
    """
    if "criterion" in request:
        return _of_criterion(_read(request, CriterionRequest))
    return _of_rubric(_read(request, HolisticRequest))


def tokens(request: dict[str, Any]) -> tuple[int, int]:
    """Return (prompt, completion) tokens: a quarter of the canonical text's bytes, and 16.

    Raises InvalidRequestError for a number that has no canonical text.
    """
    try:
        return len(canonical(request)) // BYTES_PER_TOKEN, REPLY_TOKENS
    except NotCanonicalError as error:
        raise InvalidRequestError(str(error)) from error


def reference_reply(request: dict[str, Any]) -> bytes:
    """Return the JSON text of the reply to a request. Raises InvalidRequestError."""
    verdict = judge(request)
    prompt, completion = tokens(request)
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    return json.dumps({"score": verdict.score, "scores": verdict.scores, "usage": usage}).encode()


_Request = TypeVar("_Request", HolisticRequest, CriterionRequest)


def _read(request: dict[str, Any], kind: type[_Request]) -> _Request:
    try:
        return msgspec.convert(request, kind)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(str(error)) from error


def _of_rubric(request: HolisticRequest) -> Verdict:
    rubric = request.rubric
    known = {"correct": float(request.verified), **_observed(request.trajectory)}
    unknown = [name for name in rubric.weights if name not in known]
    if unknown or not rubric.weights:
        raise InvalidRequestError(
            f"rubric.weights may name {', '.join(known)}; it names {unknown or 'nothing'}"
        )
    # The sum is taken in this order, not in the request's: floats do not commute in a sum.
    shares = {name: value for name, value in known.items() if name in rubric.weights}
    total = 0.0
    for name, value in shares.items():
        total += rubric.weights[name] * value
    if not math.isfinite(total):
        raise InvalidRequestError("rubric.weights must be finite, and their sum")
    scores = {name: _on(rubric.scales.get(name, UNIT), value) for name, value in shares.items()}
    noise = generator("judge", request.trial_id, rubric.name, run_seed=request.seed)
    return Verdict(round(total + noise.uniform(-NOISE, NOISE), 3), scores)


def _of_criterion(request: CriterionRequest) -> Verdict:
    name, prompt = request.criterion.name, request.criterion.prompt
    share = _observed(request.trajectory).get(name)
    if share is None:
        text = canonical(msgspec.to_builtins(request.trajectory)).decode("utf-8", "surrogatepass")
        draw = generator("criterion", name, prompt or "", text, run_seed=request.seed)
        share = round(draw.random(), 3)
    score = _on(request.criterion.scale, share)
    return Verdict(score, {name: score})


def _on(scale: tuple[float, float], share: float) -> float:
    """Return the score so far up a scale; on [0, 1] the share itself."""
    low, high = scale
    if not low < high:
        raise InvalidRequestError(f"scale must be [low, high], low below high, not {list(scale)}")
    return min(high, low + share * (high - low))  # not above it by a last bit


def _observed(trajectory: Trajectory) -> dict[str, float]:
    return {
        "efficiency": max(0.0, 1 - (len(trajectory.turns) - 1) / 8),
        "tidiness": 1.0 if trajectory.files == [ANSWER_FILE] else 0.0,
    }
