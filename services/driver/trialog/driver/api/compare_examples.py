"""Examples of the answers that put runs side by side: a run and its fork with another rubric."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from trialog.driver.api import compare_schemas
from trialog.driver.api.rubric_diff import differences
from trialog.driver.api.schemas import RUN_ID, TRIAL_ID
from trialog.proto.rubric import BUILT_IN

_PARENT = "r-ponmlkjihgfedcba"
_V1, _V2 = BUILT_IN["v1"], BUILT_IN["v2-efficiency"]
_TREE_RUN = ("state", "mode", "from_step", "rubric", "created_at", "steps_applied", "n_steps")
_SIDE = ("state", "mode", "rubric", "steps_applied", "n_steps", "mean_reward", "counts", "cost")

_COMPARED: dict[str, Any] = {
    "n": 6,
    "mean_reward": {"a": 1.615, "b": 2.412},
    "delta": 0.796167,
    "n_trials": {"a": 6, "b": 6},
    "n_scored": {"a": 6, "b": 6},
}


def _source(state: str, run_id: str, position: int) -> dict[str, Any]:
    return {"state": state, "run_id": run_id, "position": position}


def _step(state: str, run_id: str, mean_reward: float, position: int) -> dict[str, Any]:
    return {
        "state": "applied",
        "mean_reward": mean_reward,
        "n_skipped": 0,
        "trained": True,
        "provenance": _source(state, run_id, position),
    }


def _trial(run_id: str, state: str, score: float, judged_at: int) -> dict[str, Any]:
    return {
        "state": "judged",
        "reward": score + 1.0,
        "judge_score": score,
        "scores": {"correct": 1.0, "efficiency": 0.875, "tidiness": 1.0},
        "verified": True,
        "found_doc": 0,
        "n_turns": 2,
        "skip_reason": None,
        "judge_calls": {"executed": 1, "recovered": 0},
        "provenance": {
            "generate": _source(state, _PARENT, 24),
            "verify": _source(state, _PARENT, 25),
            "judge": _source("executed", run_id, judged_at),
        },
    }


def examples(run: dict[str, Any]) -> dict[type[BaseModel], dict[str, Any]]:
    """Return the examples, given that of a run."""
    a = {"run_id": _PARENT, "parent": None, "root": _PARENT}
    b = {"run_id": RUN_ID, "parent": _PARENT, "root": _PARENT}
    sides = {key: run[key] for key in _SIDE}
    trial = {
        "trial_id": TRIAL_ID,
        "step": 0,
        "a": _trial(_PARENT, "executed", 1.322, 38),
        "b": _trial(RUN_ID, "recovered", 2.391, 190),
        "same_trajectory": True,
        "delta": {"reward": 1.069, "scores": {"correct": 0.0, "efficiency": 0.0, "tidiness": 0.0}},
    }
    step = {
        "step": 0,
        "a": _step("executed", _PARENT, 1.615, 56),
        "b": _step("executed", RUN_ID, 2.412, 204),
    }
    rubric = {
        "field": "rubric",
        "from": {"name": _V1.name, "digest": _V1.digest},
        "to": {"name": _V2.name, "digest": _V2.digest},
        "rubric": differences(_V1, _V2),
    }
    parent = {"run_id": _PARENT, "position": 147, "changes": [rubric]}
    line = {key: run[key] for key in (*_TREE_RUN, "mean_reward", "cost")} | run["counts"]
    line = {key: value for key, value in line.items() if key not in ("retried", "lost", "skipped")}
    return {
        compare_schemas.Comparison: {
            "a": a | sides,
            "b": b | sides | {"rubric": _V2.name},
            "same_tree": True,
            "totals": _COMPARED,
            "steps": [_COMPARED | step],
            "steps_left_out": 0,
            "trials": [trial],
            "next_cursor": None,
        },
        compare_schemas.Lineage: {
            "run_id": RUN_ID,
            "root": _PARENT,
            "ancestors": [parent | {k: run[k] for k in ("state", "mode", "from_step", "rubric")}],
            "runs": [
                line | {"run_id": _PARENT, "parent": None},
                line | {"run_id": RUN_ID, "parent": _PARENT, "rubric": _V2.name},
            ],
            "next_cursor": None,
        },
    }
