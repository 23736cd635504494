"""Reading a judge's reply: a verdict that is whole, or an invalid reply. Never anything between."""

from __future__ import annotations

import json
import math
from typing import Any, cast

import msgspec

from trialog.proto.canonical import canonical
from trialog.proto.rubric import UNIT

BYTES_PER_TOKEN = 4
MAX_TOKENS = 2**31  # of one call; nobody's sums overflow, whatever a reply tells


class Reading(msgspec.Struct, frozen=True):
    """What a reply says. Invalid: no score at all. Tokens the reply does not tell, or not
    believably, are estimated from the bytes, so that no call looks free to a budget."""

    score: float | None
    scores: dict[str, float]
    prompt_tokens: int
    completion_tokens: int

    @property
    def valid(self) -> bool:
        """Whether the reply is a verdict."""
        return self.score is not None


class Prices(msgspec.Struct, frozen=True):
    """US dollars per million tokens, which is also microdollars per token."""

    prompt_usd_per_mtok: float = 0.0
    completion_usd_per_mtok: float = 0.0

    def cost_microusd(self, reading: Reading) -> int:
        """Return the cost of a reply, to the nearest millionth of a dollar."""
        return round(
            reading.prompt_tokens * self.prompt_usd_per_mtok
            + reading.completion_tokens * self.completion_usd_per_mtok
        )


def read_reply(request: dict[str, Any], raw: bytes) -> Reading:
    """Read the reply to a request.

    Valid is a JSON object with a finite number as ``score`` and, as ``scores``, one number for each
    criterion that was asked for and for no other, on that criterion's scale. Asked for a single
    criterion, ``score`` is on its scale too; of a whole rubric it is the judge's own sum. Nothing
    is filled in or clamped.
    """
    body = _parsed(raw)
    prompt, completion = _tokens(body, request, raw)
    score = _number(body.get("score"))
    scores = _scores(body.get("scores"), asked(request))
    if score is None or scores is None or not _on(_scale_of_score(request), score):
        return Reading(None, {}, prompt, completion)
    return Reading(score, scores, prompt, completion)


def asked(request: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return the scales of the criteria that a request asks for, by name."""
    if "criterion" in request:
        criterion = request["criterion"]
        return {criterion["name"]: criterion.get("scale", UNIT)}
    scales = request["rubric"].get("scales", {})
    return {name: scales.get(name, UNIT) for name in request["rubric"]["weights"]}


def _scale_of_score(request: dict[str, Any]) -> tuple[float, float]:
    criterion: dict[str, Any] | None = request.get("criterion")
    return (-math.inf, math.inf) if criterion is None else criterion.get("scale", UNIT)


def _on(scale: tuple[float, float], score: float) -> bool:
    return scale[0] <= score <= scale[1]


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _scores(value: Any, scales: dict[str, tuple[float, float]]) -> dict[str, float] | None:
    if not isinstance(value, dict) or set(cast("dict[str, Any]", value)) != set(scales):
        return None
    given = cast("dict[str, Any]", value)
    scores: dict[str, float] = {}
    for name, scale in sorted(scales.items()):
        number = _number(given[name])
        if number is None or not _on(scale, number):
            return None
        scores[name] = number
    return scores


def _tokens(body: dict[str, Any], request: dict[str, Any], raw: bytes) -> tuple[int, int]:
    usage = body.get("usage")
    told = cast("dict[str, Any]", usage) if isinstance(usage, dict) else {}
    prompt, completion = _count(told.get("prompt_tokens")), _count(told.get("completion_tokens"))
    return (
        len(canonical(request)) // BYTES_PER_TOKEN if prompt is None else prompt,
        len(raw) // BYTES_PER_TOKEN if completion is None else completion,
    )


def _count(value: Any) -> int | None:
    sound = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return value if sound else None
