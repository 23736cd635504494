"""What the demo's claims are judged by: the run as the API, the log, the judge and the stack say.

Pure: everything here is a view of values that were gathered before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

from trialog.cli import metrics
from trialog.cli.fork_facts import Forks
from trialog.cli.metrics import Sample
from trialog.cli.progress import recorded_at

if TYPE_CHECKING:
    from trialog.client.models import Event, Run, Trial, Verification, Weights

CRASH_STEP = 1
REPLAY_SECONDS_METRIC = "trialog_replay_seconds"
REPLAY_STEPS_METRIC = "trialog_replay_steps"


@dataclass(frozen=True)
class Exit:
    """One end of a process of the stack; ``returncode`` is minus the signal that ended it."""

    name: str
    pid: int
    returncode: int
    at: datetime
    expected: bool


@dataclass(frozen=True)
class Facts:
    """One run of the demo, and its forks. ``weights`` by version; ``judge`` is the stand-in's own
    count before there were forks, ``chain`` what walking the log's hash chain found, ``sandboxes``
    what each sandbox process says at /metrics, ``drivers`` likewise for those that were started
    again."""

    golden: Mapping[str, Any]
    run: Run
    trials: Mapping[str, Trial]
    weights: Mapping[int, Weights]
    events: tuple[Event, ...]
    judge: Mapping[str, Any]
    chain: Verification
    exits: tuple[Exit, ...]
    restarts: Mapping[str, int]
    sandboxes: Mapping[str, Sequence[Sample]]
    drivers: Mapping[str, Sequence[Sample]]
    standby: bool
    total_s: float
    golden_fork: Mapping[str, Any]
    forks: Forks

    def of_type(self, *types: str) -> Iterator[Event]:
        """Yield the events of these types in order of position."""
        return (event for event in self.events if event["type"] in types)

    def data_of(self, *types: str) -> list[Mapping[str, Any]]:
        """Return the facts of the events of these types."""
        return [event["data"] for event in self.of_type(*types)]

    def crash(self) -> Event | None:
        """Return the event that announces the driver's crash."""
        return next(iter(self.of_type("FaultInjected")), None)

    def after_crash(self, *types: str) -> list[Event]:
        """Return the events of these types that were recorded after the crash was announced."""
        crash = self.crash()
        if crash is None:
            return []
        return [event for event in self.of_type(*types) if event["position"] > crash["position"]]

    def injected(self, stage: str) -> list[Event]:
        """Return the injected failures of a stage."""
        return [
            event
            for event in self.of_type("TrialAttemptFailed")
            if event["data"].get("injected") and event["data"]["stage"] == stage
        ]

    def driver_exits(self) -> list[Exit]:
        """Return the ends of drivers that the stack had not asked for."""
        return [one for one in self.exits if one.name.startswith("driver") and not one.expected]

    def crash_time(self) -> datetime:
        """Return when the crash was announced; raises ValueError when it was not."""
        crash = self.crash()
        if crash is None:
            raise ValueError("no crash was announced")
        return recorded_at(crash)

    def run_s(self) -> float:
        """Return recorded seconds from the first to the last event."""
        if not self.events:
            return 0.0
        return (recorded_at(self.events[-1]) - recorded_at(self.events[0])).total_seconds()

    def replay(self) -> tuple[float, int] | None:
        """Return seconds that the driver took to read and fold the log when it came back, and how
        many steps that brought; None when that was not measured, or was not all there was."""
        samples = [one for found in self.drivers.values() for one in found]
        steps = int(metrics.total(samples, REPLAY_STEPS_METRIC))
        if not CRASH_STEP < steps <= len(self.data_of("StepApplied")):
            return None
        return metrics.total(samples, REPLAY_SECONDS_METRIC), steps

    def recovery_s(self) -> float | None:
        """Return seconds from the announced crash to the first trial requested after it.

        The announcement is recorded just before the kill, so this is never too short.
        """
        crash, later = self.crash(), self.after_crash("TrialRequested")
        if crash is None or not later:
            return None
        return (recorded_at(later[0]) - recorded_at(crash)).total_seconds()


def load_golden(name: str = "injected") -> dict[str, Any]:
    """Return golden numbers: of the reference run with every fault on, or ``fork_v2``, of its fork
    with another rubric."""
    text = resources.files("trialog.cli").joinpath("golden.json").read_text(encoding="utf-8")
    return json.loads(text)[name]
