"""Reads the bytes of a trajectory: what an agent did, however the blob came to be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from trialog.driver.export.unpack import parts_of

Json = dict[str, Any]

_LATEST_S = 253_402_300_800  # the year 10000


@dataclass(frozen=True, slots=True)
class Part:
    """One try: at a task, or at a step of it (``step`` is its name then). ``atif`` is the digest of
    its document, ``error`` how it ended when not by itself, ``state`` the digest of the sandbox's
    state after it; ``graded`` what its verifier said, where it was graded on the spot. Times are
    ISO 8601, the worker's."""

    step: str | None
    error: str = ""
    message: str = ""
    atif: str = ""
    state: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    n_turns: int = 0
    graded: Json = field(default_factory=dict[str, Any])

    @property
    def rewards(self) -> dict[str, float] | None:
        """What the verifier gave on the spot, None when it gave nothing."""
        return rewards_in(self.graded.get("rewards"))

    @property
    def grading(self) -> tuple[str | None, str | None]:
        """When its verifier began and ended, where it was graded on the spot."""
        return _time(self.graded, "started_at"), _time(self.graded, "finished_at")


@dataclass(frozen=True, slots=True)
class Kept:
    """A trajectory. ``turns`` and ``answer`` are the reference agent's; a task has ``parts``."""

    turns: tuple[Json, ...] = ()
    answer: str | None = None
    files: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def of_steps(self) -> bool:
        """Whether the task has steps."""
        return any(part.step is not None for part in self.parts)


def kept_of(blob: bytes) -> Kept:
    """Return what a trajectory's bytes hold. What cannot be read is left out: it costs its own
    trial's turns and no export."""
    found = decoded(blob) or {}
    answer = found.get("answer")
    return Kept(
        tuple(_dicts(found.get("turns"))),
        answer if isinstance(answer, str) else None,
        tuple(name for name in _list(found.get("files")) if isinstance(name, str)),
        tuple(_part(one) for one in _dicts(found.get("steps"))),
    )


def decoded(blob: bytes) -> Json | None:
    """Return the JSON object in some bytes, None where there is none."""
    try:
        return msgspec.json.decode(blob, type=dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def text_of(value: Any) -> str:
    """Return a message's text; of a message of several parts, those that are text."""
    if isinstance(value, str):
        return value
    texts = (part.get("text") for part in _dicts(value))
    return "\n".join(text for text in texts if isinstance(text, str))


def rewards_in(value: Any) -> dict[str, float] | None:
    """Return rewards by name, finite numbers all; None where there are none."""
    if not isinstance(value, dict):
        return None
    given = cast("dict[Any, Any]", value)
    found = {str(name): float(one) for name, one in given.items() if _is_number(one)}
    return found or None


def _part(found: Mapping[str, Any]) -> Part:
    step, result = found.get("step"), _dict(found.get("result"))
    return Part(
        None if step is None else _as_name(step),
        _text(found, "error"),
        _text(found, "message"),
        _text(found, "atif"),
        _text(result, "state"),
        _time(result, "started_at"),
        _time(result, "finished_at"),
        _count(found, "n_turns"),
        _dict(result.get("graded")),
    )


def _as_name(step: Any) -> str:
    """Return a step's name as a folder can have it."""
    try:
        (name,) = parts_of(str(step))
    except ValueError:
        return "step"
    return name


def _dict(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""


def _count(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    return value if type(value) is int else 0


def _time(found: Mapping[str, Any], name: str) -> str | None:
    value: Any = found.get(name)
    if not _is_number(value) or not 0 <= value < _LATEST_S:
        return None
    return datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _dicts(value: Any) -> list[Json]:
    return [cast("Json", one) for one in _list(value) if isinstance(one, dict)]
