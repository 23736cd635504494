"""Made-up facts of a demo in which every claim holds, built from the golden numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from support.demo_forks import make_forks
from support.fake_api import RUN, make_run, make_trial
from trialog.cli.facts import Exit, Facts, load_golden
from trialog.cli.metrics import Sample

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
COST_MICROUSD = 1234
_TICK = timedelta(milliseconds=50)


class Script:
    """Events in order, one every 50 ms."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    @property
    def now(self) -> datetime:
        """When the next event will be recorded."""
        return START + _TICK * len(self.events)

    def add(self, type_: str, **data: Any) -> None:
        """Append an event."""
        self.events.append(
            {
                "position": len(self.events) + 1,
                "event_id": str(len(self.events)),
                "run_id": RUN,
                "type": type_,
                "schema_version": 1,
                "data": data,
                "recorded_at": self.now.isoformat(),
            }
        )


def make_facts(**changes: Any) -> Facts:
    """Return facts of a good demo, with changes."""
    golden = load_golden()
    script = Script()
    script.add("RunRequested", spec={})
    for world in ("w0", "w1", "w2"):
        script.add("WorldRequested", world_id=world)
        script.add("WorldBuilt", world_id=world, digest=f"tar-{world}")
    killed_at = START
    for step in golden["steps"]:
        for reward in step["rewards"]:
            _trial(script, golden, step["step"], reward)
        _apply(script, step)
        if step["step"] == 1:
            script.add("FaultInjected", kind="crash_driver", step=1)
            killed_at = script.now
    script.add("RunCompleted", weights_version=3, weights_digest="d3")
    return Facts(**(_defaults(golden, script, killed_at) | changes))


def _defaults(golden: dict[str, Any], script: Script, killed_at: datetime) -> dict[str, Any]:
    keys = [e["data"]["call_key"] for e in script.events if e["type"] == "JudgeCallRecorded"]
    buckets = {"0.01": 15.0, "0.05": 18.0, "+Inf": 18.0}
    fork = [
        Sample("trialog_sandbox_fork_seconds_bucket", {"le": le}, n) for le, n in buckets.items()
    ]
    done = Sample("trialog_work_total", {"kind": "trial", "ended": "done"}, 9.0)
    return {
        "golden": golden,
        "run": _run(golden),
        "trials": _trials(golden),
        "weights": {
            s["step"] + 1: {"version": s["step"] + 1, "digest": "d", "doc_prior": s["prior"]}
            for s in golden["steps"]
        },
        "events": tuple(script.events),
        "judge": {"calls": len(keys), "by_key": dict.fromkeys(keys, 1)},
        "chain": {"broken_at": None, "checked_until": 10_000},
        "exits": (Exit("driver-1", 7, -9, killed_at, False), Exit("ray", 8, 0, START, True)),
        "restarts": {"driver-1": 1, "sandbox-1": 0},
        "sandboxes": {"sandbox-1": [*fork, done], "sandbox-2": [done]},
        "drivers": {"driver-1": replay(0.0015, 2)},
        "standby": False,
        "total_s": 30.0,
        "golden_fork": load_golden("fork_v2"),
        "forks": make_forks(
            golden, load_golden("fork_v2"), script.events, script.events[-1]["position"]
        ),
    }


def replay(seconds: float, steps: float) -> list[Sample]:
    """Return what a driver that came back says of its replay."""
    values = {"seconds": seconds, "steps": steps}
    return [Sample(f"trialog_replay_{name}", {}, value) for name, value in values.items()]


def _trial(script: Script, golden: dict[str, Any], step: int, reward: dict[str, Any]) -> None:
    name = reward["trial_id"]
    about = {"trial_id": name, "step": step}
    script.add("TrialRequested", **about)
    if name in golden["generate_retried"]:
        _fail(script, name, "generate")
    script.add("TrajectoryRecorded", **about, digest=f"did-{name}", blob=f"bytes-{name}")
    script.add("TrialVerified", **about)
    script.add("JudgeCallStarted", trial_id=name, call_key=f"call-{name}", fence=1)
    call = {"trial_id": name, "call_key": f"call-{name}"}
    script.add("JudgeCallRecorded", **call, ordinal=0, cost_microusd=COST_MICROUSD)
    if name in golden["judge_retried"]:
        _fail(script, name, "judge")
    script.add("Judged", **about, reward=reward["reward"], n_turns=reward["n_turns"])


def _fail(script: Script, name: str, stage: str) -> None:
    failed = {"subject": name, "stage": stage, "n": 0}
    script.add("TrialAttemptFailed", **failed, failure="injected", injected=True)
    script.add("TrialRetryScheduled", **failed, not_before_ms=0, jitter_ms=0)


def _apply(script: Script, step: dict[str, Any]) -> None:
    number = step["step"]
    script.add("StepRequested", step=number)
    script.add(
        "StepApplied",
        step=number,
        trained=True,
        prior_digest=f"d{number}",
        digest=f"d{number + 1}",
        actor="actor-1",
        pid=42,
    )


def _run(golden: dict[str, Any]) -> dict[str, Any]:
    run = make_run(state="completed")
    run["steps"] = [
        {"step": s["step"], "mean_reward": s["mean_reward"], "mean_turns": s["mean_turns"]}
        for s in golden["steps"]
    ]
    trials = dict.fromkeys(("generate", "verify", "judge_call", "judge"), 18)
    run["counts"]["executed"] = trials | {"build_world": 3, "train_step": 3}
    run["cost"] |= {"judge_calls": 18, "usd": 18 * COST_MICROUSD / 1_000_000}
    return run


def _trials(golden: dict[str, Any]) -> dict[str, Any]:
    rewards = {r["trial_id"]: r for step in golden["steps"] for r in step["rewards"]}
    return {
        name: make_trial(
            name,
            world_id=trajectory["world_id"],
            turns=trajectory["turns"],
            answer=trajectory["answer"],
            files_written=trajectory["files"],
            verified=rewards[name]["verified"],
            found_doc=rewards[name]["found_doc"],
            judge_score=rewards[name]["judge_score"],
            reward=rewards[name]["reward"],
        )
        for name, trajectory in golden["trajectories"].items()
    }
