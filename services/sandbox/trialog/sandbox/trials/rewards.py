"""What a verifier's reward files say: the outcome table of the Harbor format, bounded. Pure.

``reward.json`` is read before ``reward.txt``. Any finite number is a reward and none is clamped;
what is no reward is an error by the format's name of it, and never a zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from trialog.sandbox.errors import TaskError

NOT_FOUND, EMPTY = "RewardFileNotFoundError", "RewardFileEmptyError"
UNREADABLE, INVALID = "VerifierOutputParseError", "ValidationError"
COUNTS = "reward"
MAX_FILE_BYTES = 64_000
MAX_REWARDS, MAX_REWARDS_BYTES = 50, 2000
_SHOWN = 60

Rewards = dict[str, float]


def parse(json_file: bytes | None, text_file: bytes | None) -> Rewards:
    """Return the rewards of the two files (None: there is none). ``{}`` is no reward, yet no error.

    Raises TaskError with the format's name of what is wrong.
    """
    if json_file is not None:
        return _of_json(json_file)
    if text_file is not None:
        return _of_text(text_file)
    raise TaskError(NOT_FOUND, "the verifier wrote neither reward.json nor reward.txt")


def _of_text(content: bytes) -> Rewards:
    if not content:
        raise TaskError(EMPTY, "reward.txt is empty")
    try:
        value = float(content.decode())
    except ValueError as error:
        raise TaskError(UNREADABLE, f"reward.txt is no number: {_shown(content)}") from error
    return {COUNTS: _finite(value, "reward.txt")}


def _of_json(content: bytes) -> Rewards:
    if not content:
        raise TaskError(EMPTY, "reward.json is empty")
    try:
        given = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise TaskError(UNREADABLE, f"reward.json is no JSON: {_shown(content)}") from error
    if not isinstance(given, dict):
        _number(given, "reward.json")  # one that is no number is unreadable, a number misplaced
        raise TaskError(INVALID, f"reward.json is no object of rewards: {_shown(content)}")
    fields = cast("dict[str, Any]", given)
    rewards = {
        name: _number(value, f"reward.json, {name[:40]!r}") for name, value in fields.items()
    }
    return _bounded(rewards)


def _number(value: Any, where: str) -> float:
    if not isinstance(value, int | float):
        raise TaskError(UNREADABLE, f"{where} is no number: {_shown(repr(value).encode())}")
    try:
        return _finite(float(value), where)
    except OverflowError as error:
        raise TaskError(UNREADABLE, f"{where} is too large a number") from error


def _finite(value: float, where: str) -> float:
    if not math.isfinite(value):
        raise TaskError(UNREADABLE, f"{where} is not finite: {value}")
    return value


def _bounded(rewards: Rewards) -> Rewards:
    """Refuse what would not fit on the log beside the rest of its event."""
    if len(rewards) > MAX_REWARDS:
        raise TaskError(UNREADABLE, f"{len(rewards)} rewards; the limit is {MAX_REWARDS}")
    size = len(json.dumps(rewards))
    if size > MAX_REWARDS_BYTES:
        raise TaskError(UNREADABLE, f"{size} bytes of rewards; the limit is {MAX_REWARDS_BYTES}")
    return rewards


def _shown(content: bytes) -> str:
    """Return the beginning of what was written, as a person reads it."""
    return repr(content[:_SHOWN].decode("utf-8", "backslashreplace"))


def counting(rewards: Mapping[str, float]) -> float | None:
    """Return the one reward that counts: the one named ``reward``, else the mean of all, None if
    there is none."""
    if not rewards:
        return None
    if COUNTS in rewards:
        return rewards[COUNTS]
    return _mean(list(rewards.values()))


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum of finite numbers can be infinite, their mean never is
        return math.fsum(value / len(values) for value in values)


def gate(rewards: Mapping[str, float], least: float | Mapping[str, float] | None) -> str | None:
    """Say which reward of a step is below its ``min_reward``, None when none is.

    A plain number is for the reward named ``reward``; a reward that is missing is below any.
    """
    if least is None:
        return None
    wanted = least if isinstance(least, Mapping) else {COUNTS: least}
    for name, threshold in wanted.items():
        found = rewards.get(name, -math.inf)
        if found < threshold:
            return f"{name} is {found:g}, below {threshold:g}"
    return None


def combined(steps: Iterable[Rewards], strategy: Literal["mean", "final"] | None) -> Rewards:
    """Return the rewards of a task from those of the steps that were played.

    ``final``: the last one's. Otherwise the mean of each reward by name, a missing one being 0.
    """
    played = list(steps)
    if not played:
        return {}
    if strategy == "final":
        return played[-1]
    names = dict.fromkeys(name for rewards in played for name in rewards)
    means = {name: _mean([rewards.get(name, 0.0) for rewards in played]) for name in names}
    return _bounded(means)
