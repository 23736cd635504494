"""The tasks of a run and how they went: a fold over its trials' documents. Pure.

Means are over trials with a verdict; those without one are counted apart and are no zeros (I11).
The run's mean is over its tasks, each weighing the same however many of its trials were scored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trialog.driver.views import TRIAL_ENDED, Doc


@dataclass(slots=True)
class _Mean:
    n: int = 0
    total: float = 0.0

    def add(self, value: float) -> None:
        """Take one more value."""
        self.n += 1
        self.total += value

    @property
    def mean(self) -> float | None:
        """The mean, None of nothing."""
        return self.total / self.n if self.n else None


@dataclass(slots=True)
class TaskTally:
    """What became of the trials of one task."""

    trials: int = 0
    scored: int = 0
    unscored: int = 0
    reward: _Mean = field(default_factory=_Mean)
    rewards: dict[str, _Mean] = field(default_factory=dict[str, _Mean])
    errors: dict[str, int] = field(default_factory=dict[str, int])
    modes: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, doc: Doc) -> None:
        """Take one more trial."""
        self.trials += 1
        error = doc["error"]
        if doc["state"] == "judged" and doc["reward"] is not None:
            self.scored += 1
            self.reward.add(doc["reward"])
            for name, value in doc["rewards"].items():
                self.rewards.setdefault(name, _Mean()).add(value)
        elif doc["state"] in TRIAL_ENDED:
            self.unscored += 1
            error = error or doc["skip_reason"] or doc["state"]
        if error:
            self.errors[error] = self.errors.get(error, 0) + 1
        if doc["mode"]:
            self.modes[doc["mode"]] = self.modes.get(doc["mode"], 0) + 1

    def shown(self) -> dict[str, Any]:
        """Return the numbers; a trial that has not ended is neither scored nor unscored."""
        return {
            "trials": self.trials,
            "scored": self.scored,
            "unscored": self.unscored,
            "open": self.trials - self.scored - self.unscored,
            "mean_reward": self.reward.mean,
            "rewards": {name: one.mean for name, one in sorted(self.rewards.items())},
            "errors": dict(sorted(self.errors.items())),
            "modes": dict(sorted(self.modes.items())),
        }


@dataclass(slots=True)
class Tally:
    """All tasks of a run in the order in which they were first seen."""

    tasks: dict[str, TaskTally] = field(default_factory=dict[str, TaskTally])
    whole: TaskTally = field(default_factory=TaskTally)

    def begin(self, task: str) -> None:
        """Take a task that nobody may have tried."""
        self.tasks.setdefault(task, TaskTally())

    def add(self, task: str, doc: Doc) -> None:
        """Take one more trial of a task."""
        self.tasks.setdefault(task, TaskTally()).add(doc)
        self.whole.add(doc)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row a task."""
        return [{"task": name, **task.shown()} for name, task in self.tasks.items()]

    def totals(self) -> dict[str, Any]:
        """Return the run's numbers: counts over trials, means over tasks."""
        means = _Mean()
        for task in self.tasks.values():
            if task.reward.mean is not None:
                means.add(task.reward.mean)
        shown = self.whole.shown()
        tasks = {"tasks": len(self.tasks), "tasks_scored": means.n}
        return tasks | shown | {"mean_reward": means.mean, "rewards": self._rewards()}

    def _rewards(self) -> dict[str, float | None]:
        names = sorted({name for task in self.tasks.values() for name in task.rewards})
        found: dict[str, float | None] = {}
        for name in names:
            over = _Mean()
            for task in self.tasks.values():
                mean = task.rewards[name].mean if name in task.rewards else None
                if mean is not None:
                    over.add(mean)
            found[name] = over.mean
        return found
