"""Forks of the small server that follows the driver's API contract (support/fake_api.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

KINDS = ("build_world", "generate", "verify", "judge_call", "judge", "train_step")
COST = {"judge_calls": 6, "prompt_tokens": 600, "completion_tokens": 60, "usd": 0.0107}


def planned(step: int, until: int | None = None, **kinds: tuple[int, int, int, str]) -> Any:
    """Return a step of a plan; each kind is recovered, executed, unknown and the reason."""
    nothing = (0, 0, 0, "")
    actions = {
        kind: {
            "recovered": counts[0],
            "executed": counts[1],
            "unknown": counts[2],
            "reasons": [counts[3]] if counts[3] else [],
        }
        for kind in KINDS
        for counts in [kinds.get(kind, nothing)]
    }
    return {"step": step, "until": step if until is None else until, "actions": actions}


def plan_of(parent: str, steps: list[Any], estimate: Any = None) -> dict[str, Any]:
    """Return a plan as a dry run answers it."""
    names = ("recovered", "executed", "unknown")
    totals = {
        kind: {name: sum(step["actions"][kind][name] for step in steps) for name in names}
        for kind in KINDS
    }
    about = {"dry_run": True, "parent": parent, "position": 147, "mode": "recompute"}
    return about | {
        "from_step": 0,
        "totals": totals,
        "steps": steps,
        "estimate": estimate
        or {
            "judge_calls": {"at_least": 6, "at_most": 18},
            "tokens": {"at_least": 786, "at_most": 2358},
            "usd": {"at_least": 0.0036, "at_most": 0.0107},
            "basis": "the mean by criterion of 18 recorded calls",
        },
    }


def tree_run(run_id: str, parent: str | None, **changes: Any) -> dict[str, Any]:
    """Return a run's line in a lineage."""
    return {
        "run_id": run_id,
        "parent": parent,
        "state": "completed",
        "mode": "recompute",
        "from_step": 0,
        "rubric": "v1",
        "created_at": "2026-11-30T12:00:00.000000+00:00",
        "steps_applied": 3,
        "n_steps": 3,
        "mean_reward": 2.358,
        "executed": dict.fromkeys(KINDS, 1),
        "recovered": dict.fromkeys(KINDS, 2),
        "cost": COST,
    } | changes


class FakeForks:
    """Forks, plans, lineages and comparisons: what is asked is kept, what is answered is given."""

    def __init__(self, add_run: Callable[..., dict[str, Any]]) -> None:
        self._add_run = add_run
        self.page_size = 100
        self.asked: list[tuple[dict[str, str], Any]] = []
        self.plan: dict[str, Any] = {}
        self.lineage: dict[str, Any] = {}
        self.comparison: dict[str, Any] = {}
        self.unknown_rubric: str | None = None
        self.on_fork: Callable[[str], None] = lambda _: None
        self.router = APIRouter()
        self.router.add_api_route("/runs/{run_id}/fork", self._fork, methods=["POST"])
        self.router.add_api_route("/runs/{run_id}/lineage", self._lineage)
        self.router.add_api_route("/runs/{a}/compare/{b}", self._compare)

    async def _fork(self, request: Request, run_id: str) -> Response:
        query, body = dict(request.query_params), await request.json()
        self.asked.append((query, body))
        error = None
        if body.get("from_step", 0) > 3:
            error = {"field": "from_step", "message": f"is beyond the steps of {run_id}"}
        elif query.get("rubric", "") == self.unknown_rubric:
            error = {"field": "rubric", "message": f"{self.unknown_rubric} is unknown"}
        if error is not None:
            about = {"title": "Invalid fork", "status": 422, "errors": [error]}
            return JSONResponse(about, 422, media_type="application/problem+json")
        if query.get("dry_run") == "true":
            return JSONResponse(self.plan)
        fork = self._add_run("r-forkforkforkfork", parent=run_id)
        self.on_fork("r-forkforkforkfork")
        return JSONResponse(fork, 201)

    async def _lineage(self, cursor: str = "0", limit: int = 100) -> Any:
        return self._paged(self.lineage, "runs", cursor, limit)

    async def _compare(
        self, a: str, b: str, step: int | None = None, cursor: str = "0", limit: int = 100
    ) -> Any:
        trials = [t for t in self.comparison["trials"] if step in (None, t["step"])]
        page = self._paged(self.comparison | {"trials": trials}, "trials", cursor, limit)
        return page if cursor == "0" else page | {"totals": None, "steps": []}

    def _paged(self, whole: dict[str, Any], key: str, cursor: str, limit: int) -> dict[str, Any]:
        start = int(cursor)
        end = start + min(limit, self.page_size)
        following = str(end) if end < len(whole[key]) else None
        return whole | {key: whole[key][start:end], "next_cursor": following}
