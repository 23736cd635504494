"""What a trajectory means: no time, id, count of tokens or cost, so that twins are one.

The whole of it is under the trajectory's digest; a judge is shown a bounded part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trialog.sandbox.trajectory.clip import clip
from trialog.sandbox.trajectory.log import Call, Recorder, Step

SHOWN_CHARACTERS = 64_000
Turn = dict[str, Any]

# How many turns, calls of a turn and characters of a text are shown: the first that fits, and the
# last always does.
_WIDTHS = ((200, 50, 4_000), (200, 20, 1_000), (200, 8, 400), (60, 4, 400), (12, 2, 200))


def meaning(log: Recorder, step: str | None = None) -> list[Turn]:
    """Return all turns of a try; ``step`` names the part of a task that it was at."""
    return [_turn(each, step) for each in log.steps]


def shown(turns: Sequence[Turn]) -> list[Turn]:
    """Return turns that take at most SHOWN_CHARACTERS of text: of many the first and the last, of
    a long text its head and tail."""
    bounded: list[Turn] = []
    for most, calls, characters in _WIDTHS:
        kept = [_narrowed(turn, calls, characters) for turn in _ends(turns, most)]
        bounded = _with_gap(kept, len(turns), most)
        if _length(bounded) <= SHOWN_CHARACTERS:
            break
    return bounded


def _turn(step: Step, name: str | None) -> Turn:
    found: Turn = {} if name is None else {"step": name}
    found |= {"source": step.source, "message": step.text}
    if step.reasoning is not None:
        found["reasoning"] = step.reasoning
    if step.calls:
        found["calls"] = [_call(call) for call in step.calls]
    return found


def _call(call: Call) -> Turn:
    found: Turn = {"name": call.name, "arguments": call.arguments, "result": call.result}
    return found if call.exit_code is None else found | {"exit_code": call.exit_code}


def _ends(items: Sequence[Any], most: int) -> list[Any]:
    if len(items) <= most:
        return list(items)
    return [*items[: most // 2], *items[-(most // 2) :]]


def _with_gap(kept: list[Turn], total: int, most: int) -> list[Turn]:
    if total <= most:
        return kept
    gap = {"source": "system", "message": f"[{total - len(kept)} turns left out]"}
    return [*kept[: most // 2], gap, *kept[most // 2 :]]


def _narrowed(turn: Turn, calls: int, characters: int) -> Turn:
    narrow = _narrow(turn, characters)
    if "calls" in turn:
        narrow["calls"] = [_narrow(call, characters) for call in _ends(turn["calls"], calls)]
        if len(turn["calls"]) > calls:
            narrow["calls_left_out"] = len(turn["calls"]) - len(narrow["calls"])
    return narrow


def _narrow(values: Mapping[str, Any], characters: int) -> Turn:
    return {key: _clipped(value, characters) for key, value in values.items()}


def _clipped(value: Any, characters: int) -> Any:
    if isinstance(value, str):
        return clip(value, characters)
    return _narrow(value, characters) if isinstance(value, Mapping) else value


def _length(value: Any) -> int:
    """Return about how many characters a JSON value takes."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(key) + _length(item) for key, item in value.items())
    return sum(map(_length, value)) if isinstance(value, list) else 1
