"""Two runs side by side: trial by trial, and means over what is scored in both. Pure.

What has no verdict has no score and no delta: it is left out of means, never a zero (I11). Deltas
are B minus A.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

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
# Rewards have three decimals; what a subtraction adds behind them is noise.
_DIGITS = 6


class Pair(NamedTuple):
    """A trial that one run has or both have: whether, and its reward where it is scored."""

    trial_id: str
    step: int
    in_a: bool
    reward_a: float | None
    in_b: bool
    reward_b: float | None


def pair_of(trial_id: str, a: Doc | None, b: Doc | None) -> Pair:
    """Return a trial's pair from its two documents, of which one may be missing."""
    step = (a or b or {})["step"]
    reward_a, reward_b = (None if doc is None else doc["reward"] for doc in (a, b))
    return Pair(trial_id, step, a is not None, reward_a, b is not None, reward_b)


@dataclass(slots=True)
class _Sum:
    """Counts of trials, and the rewards of those that are scored in both."""

    n_a: int = 0
    n_b: int = 0
    scored_a: int = 0
    scored_b: int = 0
    rewards_a: list[float] = field(default_factory=list[float])
    rewards_b: list[float] = field(default_factory=list[float])

    def add(self, pair: Pair) -> None:
        """Count one trial; to be given in order of trial id, as steps are trained."""
        self.n_a += pair.in_a
        self.n_b += pair.in_b
        self.scored_a += pair.reward_a is not None
        self.scored_b += pair.reward_b is not None
        if pair.reward_a is not None and pair.reward_b is not None:
            self.rewards_a.append(pair.reward_a)
            self.rewards_b.append(pair.reward_b)

    def shown(self) -> Doc:
        """Return it as a document; without a trial that is scored in both, means are None."""
        n = len(self.rewards_a)
        mean_a = sum(self.rewards_a) / n if n else None
        mean_b = sum(self.rewards_b) / n if n else None
        return {
            "n": n,
            "mean_reward": {"a": rounded(mean_a, 3), "b": rounded(mean_b, 3)},
            "delta": rounded(_delta(mean_a, mean_b), 3),
            "n_trials": {"a": self.n_a, "b": self.n_b},
            "n_scored": {"a": self.scored_a, "b": self.scored_b},
        }


def summed(pairs: Iterable[Pair]) -> tuple[Doc, dict[int, Doc]]:
    """Return totals, and the same by step. ``pairs`` come in order of trial id."""
    total, steps = _Sum(), dict[int, _Sum]()
    for pair in pairs:
        total.add(pair)
        steps.setdefault(pair.step, _Sum()).add(pair)
    return total.shown(), {step: each.shown() for step, each in steps.items()}


def step_rows(
    sums: Mapping[int, Doc], a: Mapping[int, Doc], b: Mapping[int, Doc], most: int
) -> list[Doc]:
    """Return the first ``most`` steps that either run has begun, in order, each with what both
    say of it."""
    nothing = _Sum().shown()
    return [
        {"step": step}
        | sums.get(step, nothing)
        | {"a": _only(_STEP_SIDE, a.get(step)), "b": _only(_STEP_SIDE, b.get(step))}
        for step in sorted({*sums, *a, *b})[:most]
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
