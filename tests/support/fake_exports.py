"""The exports of the fake driver: archives, rows, and how tasks went."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from support.exports import tar

COUNTS: dict[str, Any] = {
    "trials": 1,
    "scored": 1,
    "unscored": 0,
    "open": 0,
    "mean_reward": 1.0,
    "rewards": {"reward": 1.0},
    "errors": {},
    "modes": {"separate": 1},
}


def make_row(trial_id: str, run_id: str, **changes: Any) -> dict[str, Any]:
    """Return a row for training as the API shows it."""
    row = {
        "run_id": run_id,
        "step": 0,
        "task": "hello",
        "trial_id": trial_id,
        "group_id": f"{run_id}/s0-p0",
        "sample": 0,
        "state": "judged",
        "instruction": "Say hello.",
        "prompt": [{"role": "user", "content": "Say hello."}],
        "turns": [
            {
                "source": "agent",
                "task_step": None,
                "text": "I do. \u2713",
                "reasoning": None,
                "tool_calls": [{"id": "c1", "name": "exec", "arguments": "{}"}],
                "observations": [{"call_id": "c1", "text": "hello"}],
                "weights_version": 0,
            }
        ],
        "prompt_token_ids": [1, 2],
        "completion_token_ids": [3, 8, 4],
        "loss_mask": [1, 0, 1],
        "logprobs": [-0.5, None, -0.25],
        "segments": None,
        "reward": 1.0,
        "reward_valid": True,
        "rewards": {"reward": 1.0},
        "scores": None,
        "error": None,
        "mode": "separate",
        "weights_version": 0,
    }
    return row | changes


class FakeExports:
    """``files`` are the archives' by trial, "" for the run's own; ``rows`` come by ``page_size``.
    ``raw`` has archives that are sent as they are; ``cut`` of the next are sent half."""

    def __init__(self, trials: dict[str, list[dict[str, Any]]]) -> None:
        self.trials = trials
        self.files: dict[str, dict[str, bytes]] = {}
        self.raw: dict[str, bytes] = {}
        self.rows: list[dict[str, Any]] = []
        self.counts: dict[str, Any] = dict(COUNTS)
        self.page_size = 2
        self.cut = 0
        self.asked: list[str] = []
        self.router = APIRouter()
        self.router.add_api_route("/runs/{run_id}/files", self._job)
        self.router.add_api_route("/runs/{run_id}/trials/{trial_id}/files", self._trial)
        self.router.add_api_route("/runs/{run_id}/rows", self._rows)
        self.router.add_api_route("/runs/{run_id}/tasks", self._tasks)

    async def _job(self, run_id: str) -> Response:
        config = {"config.json": json.dumps({"job_name": run_id}).encode()}
        return self._sent("", config | {"result.json": b"{}"})

    async def _trial(self, run_id: str, trial_id: str) -> Response:
        result = json.dumps({"trial_uri": f"trialog://{run_id}/{trial_id}"}).encode()
        return self._sent(trial_id, {"agent/log.txt": b"log", "result.json": result})

    def _sent(self, name: str, files: dict[str, bytes]) -> Response:
        self.asked.append(name)
        data = self.raw.get(name) or tar(self.files.get(name, {}) | files)
        headers = {"Content-Length": str(len(data))}
        if self.cut:
            self.cut -= 1
            data = data[: len(data) // 2]
        return Response(data, headers=headers, media_type="application/x-tar")

    async def _rows(self, run_id: str, cursor: str = "0", all: bool = False) -> Any:
        known = [row for row in self.rows if all or row["reward_valid"]]
        end = int(cursor) + self.page_size
        following = str(end) if end < len(known) else None
        return {"rows": known[int(cursor) : end], "next_cursor": following}

    async def _tasks(self, run_id: str) -> Response:
        totals = {"tasks": 1, "tasks_scored": 1} | self.counts
        tasks = [{"task": "hello"} | self.counts]
        about = {"run_id": run_id, "state": "completed"}
        return JSONResponse(about | {"totals": totals, "tasks": tasks})
