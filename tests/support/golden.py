"""The golden runs (tests/golden), as the judge's and the trainer's tests need them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RUNS: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "golden" / "seed-run.json").read_text()
)
RUBRICS = {"clean": "v1", "injected": "v1", "fork_v2": "v2-efficiency"}


def rewards(run: str) -> list[dict[str, Any]]:
    """Return every reward of a run, in the order of its steps and trial ids."""
    return [reward for step in RUNS[run]["steps"] for reward in step["rewards"]]


def trajectory(run: str, trial_id: str) -> dict[str, Any]:
    """Return a trial's trajectory as its meaning: without the attempt."""
    whole = RUNS[run]["trajectories"][trial_id]
    return {key: whole[key] for key in ("turns", "answer", "files")}
