"""A run's progress as a fold of its events. Pure: the only clock is the recorded one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trialog.proto.ids import InvalidIdError, parse_trial_id

RUN_STATES = {
    "RunRequested": "running",
    "RunPaused": "paused",
    "RunResumed": "running",
    "RunCompleted": "completed",
    "RunFailed": "failed",
    "RunCancelled": "cancelled",
}


@dataclass
class StepProgress:
    """What has happened to one step so far. Means are over what is scored until it is applied."""

    step: int
    requested: int = 0
    recorded: int = 0
    judged: int = 0
    skipped: int = 0
    cancelled: int = 0
    retries: int = 0
    lost: int = 0
    judge_calls: int = 0
    recovered: int = 0
    applied: bool = False
    trained: bool = False
    rewards: float = 0.0
    turns: int = 0
    mean_reward: float | None = None
    mean_turns: float | None = None
    started_at: datetime | None = None
    last_at: datetime | None = None

    @property
    def elapsed_s(self) -> float:
        """Recorded seconds from the step's first trial to its latest event."""
        return _seconds(self.started_at, self.last_at)


@dataclass
class RunProgress:
    """A run so far: feed it events in order of position, each once."""

    run_id: str = ""
    state: str = "running"
    n_steps: int | None = None
    trains: bool = True
    reason: str = ""
    steps: dict[int, StepProgress] = field(default_factory=dict[int, StepProgress])
    worlds_requested: int = 0
    worlds_built: int = 0
    faults: list[str] = field(default_factory=list[str])
    position: int = 0
    started_at: datetime | None = None
    last_at: datetime | None = None

    @property
    def elapsed_s(self) -> float:
        """Recorded seconds from the run's request to its latest event."""
        return _seconds(self.started_at, self.last_at)

    @property
    def ended(self) -> bool:
        """Whether the run has reached an end."""
        return self.state in ("completed", "failed", "cancelled")

    @property
    def steps_applied(self) -> int:
        """How many steps are in the weights."""
        return sum(step.applied for step in self.steps.values())

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take in one event as the API shows it; events seen before and unknown types pass by."""
        if event["position"] <= self.position:
            return
        self.position = event["position"]
        self.run_id = event["run_id"]
        at = recorded_at(event)
        self.started_at = self.started_at or at
        self.last_at = at
        data: Mapping[str, Any] = event["data"]
        self._apply_to_run(event["type"], data)
        number = step_of(data)
        if number is not None:
            step = self.steps.setdefault(number, StepProgress(number))
            apply_to_step(step, event["type"], data)
            step.started_at = step.started_at or at
            step.last_at = at

    def _apply_to_run(self, type_: str, data: Mapping[str, Any]) -> None:
        if type_ in RUN_STATES:
            self.state = RUN_STATES[type_]
            self.reason = str(data.get("reason", ""))
        match type_:
            case "RunRequested":
                spec = data.get("spec", {})
                self.n_steps, self.trains = spec.get("n_steps"), spec.get("learner") != "none"
            case "WorldRequested":
                self.worlds_requested += 1
            case "WorldBuilt":
                self.worlds_built += 1
            case "FaultInjected":
                self.faults.append(str(data.get("kind", "")))
            case _:
                pass


def apply_to_step(step: StepProgress, type_: str, data: Mapping[str, Any]) -> None:
    """Take one event about a step, or about one of its trials, into the step's progress."""
    if type_ in ("TrajectoryRecorded", "Judged") and data.get("provenance"):
        step.recovered += 1
    match type_:
        case "TrialRequested":
            step.requested += 1
        case "TrajectoryRecorded":
            step.recorded += 1
        case "TrialAttemptFailed" if data.get("failure") == "lost":
            step.lost += 1
        case "TrialRetryScheduled":
            step.retries += 1
        case "JudgeCallRecorded" if not data.get("provenance"):
            step.judge_calls += 1
        case "Judged":
            step.judged += 1
            step.rewards += data["reward"]
            step.turns += data["n_turns"]
            step.mean_reward = round(step.rewards / step.judged, 3)
            step.mean_turns = round(step.turns / step.judged, 2)
        case "TrialSkipped":
            step.skipped += 1
        case "TrialCancelled":
            step.cancelled += 1
        case "StepApplied":
            step.applied, step.trained = True, bool(data.get("trained"))
            step.mean_reward = data.get("mean_reward")
            step.mean_turns = data.get("mean_turns")
        case _:
            pass


def step_of(data: Mapping[str, Any]) -> int | None:
    """Return the step that an event's data is about, None when it is about none."""
    number = data.get("step")
    if isinstance(number, int):
        return number
    subject = str(data.get("trial_id") or data.get("subject") or "")
    if (of_step := subject.removeprefix("step-")) != subject and of_step.isdecimal():
        return int(of_step)
    try:
        return parse_trial_id(subject).step
    except InvalidIdError:
        return None


def recorded_at(event: Mapping[str, Any]) -> datetime:
    """Return an event's recorded time."""
    return datetime.fromisoformat(event["recorded_at"])


def _seconds(start: datetime | None, end: datetime | None) -> float:
    return (end - start).total_seconds() if start and end else 0.0
