"""An example of every answer, for the API's description; tests hold each to its schema."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from trialog.driver.api import (
    compare_examples,
    export_schemas,
    fork_schemas,
    rubric_schemas,
    schemas,
    task_results_schemas,
    task_schemas,
)
from trialog.driver.api.schemas import RUN_ID, TRIAL_ID, WORK_KEY
from trialog.proto.policy import N_DOCS
from trialog.proto.runspec import RunSpec

_AT = "2026-11-30T12:00:00.000000+00:00"
_PARENT = "r-ponmlkjihgfedcba"
_LATER = "2026-11-30T12:00:09.000000+00:00"
_DIGEST = "950f44c972026213920af37bbe189484f8071af90fe6e06fee23820454659fa3"
_ACTIONS = {"build_world": 3, "generate": 18, "verify": 18, "judge_call": 18, "judge": 18}
_STAGES = {"build_world": 0, "generate": 6, "verify": 0, "judge": 6, "train_step": 0}
_NOTHING = dict.fromkeys(_STAGES, 0)

STEP: dict[str, Any] = {
    "step": 0,
    "state": "applied",
    "position": 56,
    "mean_reward": 1.615,
    "mean_turns": 3.83,
    "n_trials": 6,
    "n_skipped": 0,
    "n_cancelled": 0,
    "n_requested": 6,
    "n_recorded": 6,
    "n_judged": 6,
    "weights_version": 1,
    "weights_digest": _DIGEST,
    "actor": "be8a064d6ad435fc79b7311c01000000",
    "pid": 4242,
    "trained": True,
    "provenance": {"state": "executed", "run_id": RUN_ID, "position": 56},
    "source": None,
    "requested_at": _AT,
    "applied_at": _LATER,
}
_SUMMARY: dict[str, Any] = {
    "run_id": RUN_ID,
    "state": "completed",
    "parent": None,
    "rubric": "v1",
    "created_at": _AT,
    "labels": {"team": "search"},
    "steps_applied": 3,
    "n_steps": 3,
    "mean_reward": 2.358,
}
RUN: dict[str, Any] = _SUMMARY | {
    "root": RUN_ID,
    "mode": "recompute",
    "from_step": 0,
    "ended_at": _LATER,
    "spec": RunSpec(labels={"team": "search"}).recorded(),
    "position": 147,
    "failure": None,
    "current_step": 2,
    "weights_version": 3,
    "weights_digest": _DIGEST,
    "steps": [STEP],
    "steps_cursor": None,
    "counts": {
        "executed": _ACTIONS | {"train_step": 3},
        "recovered": dict.fromkeys([*_ACTIONS, "train_step"], 0),
        "retried": _STAGES,
        "lost": _NOTHING,
        "skipped": 0,
    },
    "cost": {
        "judge_calls": 18,
        "prompt_tokens": 2052,
        "completion_tokens": 306,
        "usd": 0.010746,
        "saved_by_memo": {
            "judge_calls": 6,
            "prompt_tokens": 684,
            "completion_tokens": 102,
            "usd": 0.003582,
        },
        "saved_by_recovery": {
            "judge_calls": 0,
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "usd": 0.0,
        },
        "calls_started": 18,
        "calls_unrecorded": 0,
    },
    "budget": {
        "limits": {"judge_calls": None, "tokens": None, "usd": 2.5},
        "spent": {"judge_calls": 18, "tokens": 2358, "usd": 0.010746},
    },
    "faults": [{"kind": "crash_driver", "step": 1, "recorded_at": _AT}],
    "pauses": 0,
    "pause_reason": None,
}
EVENT: dict[str, Any] = {
    "position": 56,
    "event_id": "92a96249-ac6d-5f81-8193-1c99c36a50d5",
    "run_id": RUN_ID,
    "type": "TrialSkipped",
    "schema_version": 1,
    "data": {"trial_id": TRIAL_ID, "step": 0, "reason": "straggler"},
    "recorded_at": _AT,
}
TRIAL: dict[str, Any] = {
    "run_id": RUN_ID,
    "trial_id": TRIAL_ID,
    "step": 0,
    "world_id": "w1",
    "task": None,
    "state": "judged",
    "position": 38,
    "weights_version": 0,
    "requested_at": _AT,
    "ended_at": _LATER,
    "attempts": 2,
    "attempts_by_stage": {"judge": 2},
    "attempt": 0,
    "n_turns": 2,
    "turns": [{"doc": 3, "found": False}, {"doc": 0, "found": True}],
    "answer": _DIGEST,
    "files_written": ["answer.txt"],
    "found_doc": 0,
    "verified": True,
    "verifier_reward": None,
    "rewards": {},
    "mode": None,
    "error": None,
    "judge_score": 1.322,
    "scores": {"correct": 1.0, "efficiency": 0.875, "tidiness": 1.0},
    "reward": 2.322,
    "judge_calls": {"executed": 1, "recovered": 0},
    "provenance": {
        "generate": {"state": "recovered", "run_id": _PARENT, "position": 24},
        "verify": {"state": "recovered", "run_id": _PARENT, "position": 25},
        "judge": {"state": "executed", "run_id": RUN_ID, "position": 38},
    },
    "trajectory": _DIGEST,
    "skip_reason": None,
    "skip_message": None,
    "failures": [
        {"stage": "judge", "failure": "injected", "error": None, "message": "flaked", "n": 0}
    ],
}
_DEAD = {
    "key": WORK_KEY,
    "kind": "trial",
    "run_id": RUN_ID,
    "error": "UnknownEventError('TrialDreamt version 1: update this service')",
    "deliveries": 5,
    "dead_since": _AT,
}
_WORKER = {"worker": "driver-2f1c0a", "service": "driver", "host": "node-1", "pid": 4242}

EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    **rubric_schemas.EXAMPLES,
    **fork_schemas.EXAMPLES,
    **export_schemas.EXAMPLES,
    **task_results_schemas.EXAMPLES,
    **compare_examples.examples(RUN),
    **task_schemas.EXAMPLES,
    schemas.Run: RUN,
    schemas.RunPage: {"runs": [_SUMMARY], "next_cursor": None},
    schemas.StepPage: {"steps": [STEP], "next_cursor": None},
    schemas.TrialPage: {"trials": [TRIAL], "next_cursor": None},
    schemas.TrialDetail: TRIAL | {"error_message": None, "steps": None, "events": [EVENT]},
    schemas.EventPage: {"events": [EVENT], "next": 56},
    schemas.Weights: {"version": 0, "digest": _DIGEST, "doc_prior": {"w0": [1.0] * N_DOCS}},
    schemas.DeadLetterPage: {"dead_letters": [_DEAD], "next_cursor": None},
    schemas.Redriven: {"key": WORK_KEY, "run_id": RUN_ID, "run_state": "running"},
    schemas.Verification: {"broken_at": None, "checked_until": 147},
    schemas.Processes: {"processes": [_WORKER | {"registered_at": _AT}]},
    schemas.Health: {"status": "ok"},
    schemas.Problem: {
        "type": "urn:trialog:problem:invalid",
        "title": "Invalid request",
        "status": 422,
        "detail": "faults.flaky_trial_rate: Input should be less than or equal to 1",
        "instance": "/runs",
        "errors": [
            {
                "field": "faults.flaky_trial_rate",
                "message": "Input should be less than or equal to 1",
            }
        ],
    },
}
