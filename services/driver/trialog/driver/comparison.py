"""Two runs side by side: trial by trial, and means over what is scored in both. Pure.

What has no verdict has no score and no delta: it is left out of means, never a zero (I11). Deltas
are B minus A.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trialog.driver.views.documents import Doc, rounded

_SIDE: Final = (
    "state",
    "reward",
    "judge_score",
    "scores",
    "verified",
    "found_doc",
    "n_turns",
    "skip_reason",
    "judge_calls",
    "provenance",
)
_STEP_SIDE: Final = ("state", "mean_reward", "n_skipped", "trained", "provenance")
_RUN_SIDE: Final = (
    "run_id",
    "parent",
    "root",
    "state",
    "mode",
    "rubric",
    "steps_applied",
    "n_steps",
    "mean_reward",
    "counts",
    "cost",
)
# Rewards have three decimals, their means some more; what a subtraction adds behind is noise.
_DIGITS = 6


@dataclass(slots=True)
class Rewards:
    """Trials of two runs: how many each has and has scored, and the rewards of those that are
    scored in both, in one order."""

    n_a: int = 0
    n_b: int = 0
    scored_a: int = 0
    scored_b: int = 0
    a: list[float] = field(default_factory=list[float])
    b: list[float] = field(default_factory=list[float])

    def add(self, a: Doc | None, b: Doc | None) -> None:
        """Count one more trial by its two documents, of which one may be missing."""
        reward_a, reward_b = (None if doc is None else doc["reward"] for doc in (a, b))
        self.n_a += a is not None
        self.n_b += b is not None
        self.scored_a += reward_a is not None
        self.scored_b += reward_b is not None
        if reward_a is not None and reward_b is not None:
            self.a.append(reward_a)
            self.b.append(reward_b)

    def compared(self) -> Doc:
        """Return it as a document; without a trial that is scored in both, means are None."""
        n = len(self.a)
        mean_a, mean_b = (sum(self.a) / n, sum(self.b) / n) if n else (None, None)
        return {
            "n": n,
            "mean_reward": {"a": rounded(mean_a, 3), "b": rounded(mean_b, 3)},
            "delta": _delta(mean_a, mean_b),
            "n_trials": {"a": self.n_a, "b": self.n_b},
            "n_scored": {"a": self.scored_a, "b": self.scored_b},
        }


def total(steps: Iterable[Rewards]) -> Rewards:
    """Return the rewards of all steps as those of one."""
    every = Rewards()
    for one in steps:
        every.n_a += one.n_a
        every.n_b += one.n_b
        every.scored_a += one.scored_a
        every.scored_b += one.scored_b
        every.a += one.a
        every.b += one.b
    return every


def step_rows(
    rewards: Mapping[int, Rewards], a: Mapping[int, Doc], b: Mapping[int, Doc], most: int
) -> list[Doc]:
    """Return the first ``most`` steps that either run has begun, in order, each with what both
    say of it."""
    nothing = Rewards()
    return [
        {"step": step}
        | rewards.get(step, nothing).compared()
        | {"a": _only(_STEP_SIDE, a.get(step)), "b": _only(_STEP_SIDE, b.get(step))}
        for step in sorted({*rewards, *a, *b})[:most]
    ]


def trial_row(trial_id: str, a: Doc | None, b: Doc | None) -> Doc:
    """Return a trial of both runs, or of one."""
    same = None
    if a is not None and b is not None and a["trajectory"] and b["trajectory"]:
        same = a["trajectory"] == b["trajectory"]
    return {
        "trial_id": trial_id,
        "step": (a or b or {})["step"],
        "a": _only(_SIDE, a),
        "b": _only(_SIDE, b),
        "same_trajectory": same,
        "delta": _deltas(a, b),
    }


def _deltas(a: Doc | None, b: Doc | None) -> Doc | None:
    if a is None or b is None or a["reward"] is None or b["reward"] is None:
        return None
    names = dict.fromkeys([*a["scores"], *b["scores"]])
    scores = {name: _delta(a["scores"].get(name), b["scores"].get(name)) for name in names}
    return {"reward": _delta(a["reward"], b["reward"]), "scores": scores}


def run_side(run: Doc) -> Doc:
    """Return what is shown of a run that is compared."""
    return {key: run[key] for key in _RUN_SIDE}


def _only(keys: Sequence[str], doc: Doc | None) -> Doc | None:
    return None if doc is None else {key: doc[key] for key in keys}


def _delta(a: Any, b: Any) -> float | None:
    return None if a is None or b is None else round(b - a, _DIGITS)
