"""What each step's verifier gave, read from the files that it left. Pure."""

from __future__ import annotations

from typing import IO

from trialog.driver.export.kept import decoded, rewards_in
from trialog.driver.export.unpack import Allowance, Unpacked, files_of

Given = dict[str, dict[str, float]]

_REWARD_BYTES = 1 << 16
_FILES = ("reward.json", "reward.txt")


def note(given: Given, step: str, one: Unpacked) -> None:
    """Take note of what a file says that a step's verifier gave; JSON counts before text."""
    if len(one.data) > _REWARD_BYTES:
        return
    if one.parts[-1] == "reward.json" and (rewards := rewards_in(decoded(one.data))):
        given[step] = rewards
    elif one.parts[-1] == "reward.txt":
        try:
            rewards = rewards_in({"reward": float(one.data)})
        except ValueError:
            return
        if rewards:
            given.setdefault(step, rewards)


def given_in(record: IO[bytes]) -> Given:
    """Return what a record of a task with steps says of each that was graded."""
    given: Given = {}
    for one in files_of(record, _is_reward, Allowance()):
        note(given, one.parts[1], one)
    return given


def _is_reward(parts: tuple[str, ...]) -> bool:
    return len(parts) == 3 and parts[0] == "steps" and parts[-1] in _FILES
