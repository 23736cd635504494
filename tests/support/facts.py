"""Facts of a small run, in the shape that services record them, and a log in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from trialog.proto import events as ev
from trialog.proto.canonical import bytes_digest
from trialog.proto.policy import initial_weights
from trialog.proto.runspec import RunSpec
from trialog.spine.log import Recorded, new_event

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
RUN = "r-abcdefghijklmnop"


def recorded(run_id: str, facts: Sequence[ev.Fact], after: int = 0) -> list[Recorded]:
    """Return facts as events read back: contiguous positions, one a second from noon on."""
    events: list[Recorded] = []
    for position, fact in enumerate(facts, after + 1):
        new = new_event(run_id, fact)
        at = NOON + timedelta(seconds=position)
        events.append(
            Recorded(0, position, new.event_id, run_id, new.type, new.schema_version, new.data, at)
        )
    return events


def run_requested(run_id: str = RUN, **settings: Any) -> ev.RunRequested:
    """A run of 2 steps x 2 prompts x 1 sample in one world, unless told otherwise."""
    sizes: dict[str, Any] = {"n_steps": 2, "n_worlds": 1, "prompts_per_step": 2, "n_samples": 1}
    spec = RunSpec(**sizes | settings)
    weights = bytes_digest(initial_weights(spec.n_worlds))
    return ev.RunRequested(spec.recorded(), run_id, weights)


def trial_requested(trial_id: str, step: int = 0) -> ev.TrialRequested:
    """An agent is to try."""
    return ev.TrialRequested(trial_id, step, "w0", "wd", step, "wg", "generate-key")


def trajectory(
    trial_id: str,
    step: int = 0,
    n_turns: int = 2,
    blob: str = "0" * 64,
    attempt: int = 0,
    provenance: ev.Provenance | None = None,
) -> ev.TrajectoryRecorded:
    """An agent has tried."""
    return ev.TrajectoryRecorded(
        trial_id=trial_id,
        step=step,
        action_key="generate-key",
        digest="meaning",
        blob=blob,
        n_turns=n_turns,
        attempt=attempt,
        provenance=provenance,
    )


def verified(trial_id: str, step: int = 0, n_turns: int = 2, **more: Any) -> ev.TrialVerified:
    """The trial found document 3."""
    return ev.TrialVerified(
        trial_id, step, "verify-key", True, 3, "meaning", "0" * 64, n_turns, **more
    )


def judge_call(trial_id: str, ordinal: int = 0, **more: Any) -> ev.JudgeCallRecorded:
    """A call that took 100 + 20 tokens and cost 0.0003 US dollars."""
    values: dict[str, Any] = {
        "criterion": "all",
        "model": "reference-judge",
        "valid": True,
        "score": 1.0,
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "cost_microusd": 300,
        "latency_ms": 500.0,
    }
    return ev.JudgeCallRecorded(trial_id, f"call-{trial_id}", ordinal, **values | more)


def judged(trial_id: str, step: int = 0, reward: float = 2.0, **more: Any) -> ev.Judged:
    """The trial ended with a verdict."""
    scores = {"correct": 1.0, "efficiency": 0.875, "tidiness": 1.0}
    values: dict[str, Any] = {"scores": scores} | more
    return ev.Judged(
        trial_id, step, "w0", "judge-key", "jd", reward - 1, reward, True, 3, 2, **values
    )


def step_requested(step: int = 0, n_scored: int = 2, n_skipped: int = 0) -> ev.StepRequested:
    """The step's trials have ended."""
    return ev.StepRequested(step, "step-key", f"w{step}", "manifest", n_scored, n_skipped)


def step_applied(step: int = 0, **more: Any) -> ev.StepApplied:
    """The step is in the weights."""
    values: dict[str, Any] = {
        "trained": True,
        "prior_digest": f"w{step}",
        "digest": f"w{step + 1}",
        "n_trials": 2,
        "n_skipped": 0,
        "mean_reward": 2.0,
        "mean_turns": 2.0,
        "actor": "trainer-1",
        "pid": 77,
    }
    return ev.StepApplied(
        step=step,
        action_key="step-key",
        version=step + 1,
        **values | more,
    )


def judged_trial(trial_id: str, step: int = 0, blob: str = "0" * 64) -> list[ev.Fact]:
    """A trial from its request to its verdict, without a fault."""
    return [
        trial_requested(trial_id, step),
        trajectory(trial_id, step, blob=blob),
        verified(trial_id, step),
        ev.JudgeCallStarted(trial_id, f"call-{trial_id}", 1, "all", "reference-judge"),
        judge_call(trial_id),
        judged(trial_id, step),
    ]
