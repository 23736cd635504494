"""A small real HTTP server that follows the driver's API contract, for tests of its clients.

It holds runs in memory and can misbehave as a driver that restarts does: refuse, answer 503,
cut its streams, go away and come back on the same port.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Generator
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from support.fake_exports import FakeExports
from support.fake_forks import FakeForks
from support.fake_rubrics import FakeRubrics
from support.fake_tasks import FakeTasks

ENDS = {"RunCompleted": "completed", "RunFailed": "failed", "RunCancelled": "cancelled"}
KINDS = ("build_world", "generate", "verify", "judge_call", "judge", "train_step")
RUN = "r-abcdefghijklmnop"


def make_event(position: int, type_: str, run_id: str = RUN, **data: Any) -> dict[str, Any]:
    """Return an event as the API shows it, recorded `position` seconds after noon."""
    return {
        "position": position,
        "event_id": f"00000000-0000-5000-8000-{position:012d}",
        "run_id": run_id,
        "type": type_,
        "schema_version": 1,
        "data": data,
        "recorded_at": f"2026-11-30T12:{position // 60:02d}:{position % 60:02d}.000000+00:00",
    }


def make_run(run_id: str = RUN, state: str = "running", **changes: Any) -> dict[str, Any]:
    """Return a run as GET /runs/{id} shows it."""
    zeros = dict.fromkeys(KINDS, 0)
    run = {
        "run_id": run_id,
        "state": state,
        "parent": None,
        "root": run_id,
        "mode": "recompute",
        "from_step": 0,
        "rubric": "v1",
        "created_at": "2026-11-30T12:00:00.000000+00:00",
        "labels": {},
        "spec": {"n_steps": 3},
        "position": 1,
        "failure": None,
        "n_steps": 3,
        "steps_applied": 0,
        "steps": [],
        "steps_cursor": None,
        "counts": {
            "executed": dict(zeros),
            "recovered": dict(zeros),
            "retried": {k: 0 for k in KINDS if k != "judge_call"},
            "skipped": 0,
        },
        "cost": make_bill()
        | {
            "saved_by_memo": make_bill(),
            "saved_by_recovery": make_bill(),
            "calls_started": 0,
            "calls_unrecorded": 0,
        },
        "budget": {
            "limits": {"judge_calls": None, "tokens": None, "usd": None},
            "spent": {"judge_calls": 0, "tokens": 0, "usd": 0.0},
        },
        "pauses": 0,
        "pause_reason": None,
    }
    return run | changes


def make_bill(calls: int = 0) -> dict[str, Any]:
    """Return what so many judge calls cost, each 69 + 16 tokens."""
    return {
        "judge_calls": calls,
        "prompt_tokens": 69 * calls,
        "completion_tokens": 16 * calls,
        "usd": 447 * calls / 1_000_000,
    }


def make_trial(trial_id: str, **changes: Any) -> dict[str, Any]:
    """Return a judged trial as the API shows it."""
    trial = {
        "trial_id": trial_id,
        "step": int(trial_id[1 : trial_id.index("-")]),
        "world_id": "w0",
        "task": None,
        "state": "judged",
        "attempts": 1,
        "n_turns": 1,
        "turns": [{"doc": 3, "found": True}],
        "answer": "ab" * 32,
        "files_written": ["answer.txt"],
        "found_doc": 3,
        "verified": True,
        "verifier_reward": None,
        "rewards": {},
        "mode": None,
        "error": None,
        "judge_score": 1.31,
        "reward": 2.31,
        "scores": {"correct": 1.0, "efficiency": 1.0, "tidiness": 1.0},
        "judge_calls": {"executed": 1, "recovered": 0},
        "provenance": {
            action: {"state": "executed", "run_id": RUN, "position": number}
            for number, action in enumerate(("generate", "verify", "judge"), 2)
        },
        "skip_reason": None,
        "skip_message": None,
        "failures": [],
        "error_message": None,
        "steps": None,
    }
    return trial | changes


def make_dead_letter(key: str) -> dict[str, Any]:
    """Return dead work as GET /dead-letters shows it."""
    return {
        "key": key,
        "kind": "trial",
        "run_id": key.split("/", maxsplit=1)[0],
        "error": "UnknownEventError: version 99",
        "deliveries": 5,
        "dead_since": "2026-11-30T12:00:00.000000+00:00",
    }


def problem(status: int, title: str, detail: str = "", **extra: Any) -> Response:
    """Return an RFC 9457 answer."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail} | extra
    return JSONResponse(body, status, media_type="application/problem+json")


class FakeDriver:
    """The state behind the API: fill `runs`, `events`, `trials`, `weights` before or while serving.

    `failures` is a list of statuses that the next requests get instead of their answers;
    `cut_after` ends every event stream after so many events, without an end of the run.
    """

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.steps: dict[str, list[dict[str, Any]]] = {}
        self.trials: dict[str, list[dict[str, Any]]] = {}
        self.dead: list[dict[str, Any]] = []
        self.weights: dict[str, list[dict[str, Any]]] = {}
        self.trajectories: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.keys: dict[str, str] = {}
        self.script: list[dict[str, Any]] = []
        self.failures: list[int] = []
        self.cut_after: int | None = None
        self.page_size = 100
        self.api_key: str | None = None
        self.rubrics = FakeRubrics()
        self.tasks = FakeTasks()
        self.exports = FakeExports(self.trials)
        self.forks = FakeForks(self.add_run)
        self.app = self._build()

    def add_run(self, run_id: str = RUN, **changes: Any) -> dict[str, Any]:
        """Add a run and return it."""
        self.runs[run_id] = make_run(run_id, **changes)
        self.events.setdefault(run_id, [])
        return self.runs[run_id]

    def append(self, type_: str, run_id: str = RUN, **data: Any) -> dict[str, Any]:
        """Append an event to a run's log; one that ends the run sets its state."""
        log = self.events.setdefault(run_id, [])
        event = make_event(len(log) + 1, type_, run_id, **data)
        log.append(event)
        if type_ in ENDS:
            self.runs[run_id]["state"] = ENDS[type_]
        return event

    def play(self, script: list[dict[str, Any]], run_id: str = RUN) -> None:
        """Append the events of a script: their types and data."""
        for event in script:
            self.append(event["type"], run_id, **event["data"])

    def seen(self, method: str, path: str) -> list[dict[str, str]]:
        """Return the headers of every request of this method and path."""
        return [h for m, p, h in self.requests if (m, p) == (method, path)]

    def _build(self) -> FastAPI:
        app = FastAPI()
        app.middleware("http")(self._before)
        app.add_api_route("/runs", self._create, methods=["POST"])
        app.add_api_route("/runs", self._runs)
        app.add_api_route("/runs/{run_id}", self._run)
        app.add_api_route("/runs/{run_id}/steps", self._steps)
        app.add_api_route("/runs/{run_id}/trials", self._trials)
        app.add_api_route("/dead-letters", self._dead_letters)
        app.add_api_route("/dead-letters/redrive", self._redrive, methods=["POST"])
        app.include_router(self.rubrics.router)
        app.include_router(self.exports.router)
        app.include_router(self.tasks.router)
        app.include_router(self.forks.router)
        app.add_api_route("/log/verify", self._verify)
        app.add_api_route("/runs/{run_id}/events", self._events)
        app.add_api_route("/runs/{run_id}/weights/{version}", self._weights)
        app.add_api_route("/runs/{run_id}/{verb}", self._control, methods=["POST"])
        app.add_api_route("/trials/{run_id}/{trial_id}", self._trial)
        app.add_api_route("/trials/{run_id}/{trial_id}/trajectory", self._trajectory)
        return app

    async def _before(self, request: Request, call_next: Any) -> Response:
        self.requests.append((request.method, request.url.path, dict(request.headers)))
        if self.failures:
            return problem(self.failures.pop(0), "Not ready")
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return problem(401, "API key missing or wrong")
        parts = request.url.path.split("/")
        if parts[1] in ("runs", "trials") and len(parts) > 2 and parts[2] not in self.runs:
            return problem(404, "No such run", f"there is no run {parts[2]}")
        return await call_next(request)

    async def _create(self, request: Request) -> Response:
        spec = await request.json()
        if not isinstance(spec.get("n_steps", 3), int):
            error = {"field": "n_steps", "message": "Input should be a valid integer"}
            return problem(422, "Invalid run", "the run cannot be meant", errors=[error])
        key = request.headers["idempotency-key"]
        if key not in self.keys:
            run_id = f"r-{len(self.runs):x}".translate(str.maketrans("01", "ab")).ljust(18, "a")
            self.keys[key] = run_id
            self.add_run(run_id, spec=spec)
            self.play(self.script, run_id)
        run = self.runs[self.keys[key]]
        return JSONResponse(run, 201, {"Location": f"/runs/{run['run_id']}"})

    async def _runs(self, state: str | None = None, cursor: str = "0", limit: int = 0) -> Any:
        found = [run for run in self.runs.values() if state in (None, run["state"])]
        page, following = self._page(found, cursor, limit)
        keys = ("run_id", "state", "parent", "rubric", "created_at", "labels")
        rest = {"steps_applied": 0, "n_steps": 3, "mean_reward": None}
        return {"runs": [{k: r[k] for k in keys} | rest for r in page], "next_cursor": following}

    def _page(
        self, items: list[dict[str, Any]], cursor: str, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        start = int(cursor)
        end = start + (min(limit, self.page_size) if limit else self.page_size)
        return items[start:end], str(end) if end < len(items) else None

    async def _run(self, run_id: str) -> Any:
        return self.runs[run_id]

    async def _steps(self, run_id: str, cursor: str = "0", limit: int = 0) -> Any:
        page, following = self._page(self.steps.get(run_id, []), cursor, limit)
        return {"steps": page, "next_cursor": following}

    async def _trials(
        self,
        run_id: str,
        step: int | None = None,
        state: str | None = None,
        cursor: str = "0",
        limit: int = 0,
    ) -> Any:
        found = [
            trial
            for trial in self.trials.get(run_id, [])
            if step in (None, trial["step"]) and state in (None, trial["state"])
        ]
        page, following = self._page(found, cursor, limit)
        return {"trials": page, "next_cursor": following}

    async def _dead_letters(self, run: str | None = None, cursor: str = "0", limit: int = 0) -> Any:
        found = [one for one in self.dead if run in (None, one["run_id"])]
        page, following = self._page(found, cursor, limit)
        return {"dead_letters": page, "next_cursor": following}

    async def _redrive(self, request: Request) -> Response:
        key = (await request.json())["key"]
        for one in self.dead:
            if one["key"] == key:
                self.dead.remove(one)
                state = {"run_id": one["run_id"], "run_state": "running"}
                return JSONResponse({"key": key} | state, 202)
        return problem(404, "No such work", f"there is no work {key}")

    async def _verify(self, after: int = 0) -> Any:
        return {"broken_at": None, "checked_until": after + 7}

    async def _trial(self, run_id: str, trial_id: str) -> Any:
        for trial in self.trials.get(run_id, []):
            if trial["trial_id"] == trial_id:
                return trial | {"events": []}
        return problem(404, "No such trial", f"run {run_id} has no trial {trial_id}")

    async def _trajectory(self, run_id: str, trial_id: str) -> Any:
        found = self.trajectories.get(f"{run_id}/{trial_id}")
        return found or problem(404, "No such trial", f"run {run_id} has no trial {trial_id}")

    async def _weights(self, run_id: str, version: str) -> Any:
        known = self.weights.get(run_id, [])
        number = len(known) - 1 if version == "latest" else int(version)
        if not 0 <= number < len(known):
            return problem(404, "No such version", f"run {run_id} has no weights {version}")
        return known[number]

    async def _control(self, request: Request, run_id: str, verb: str) -> Any:
        run = self.runs[run_id]
        if run["state"] in ENDS.values():
            return problem(409, "The run has ended", f"run {run_id} is {run['state']}")
        run["state"] = {"cancel": "cancelled", "pause": "paused", "resume": "running"}[verb]
        if body := await request.body():
            run["budget"]["limits"] |= json.loads(body)["budget"]
        return run

    async def _events(
        self, request: Request, run_id: str, after: int = 0, limit: int = 0
    ) -> Response:
        after = max(after, int(request.headers.get("last-event-id", "0")))
        if "text/event-stream" in request.headers.get("accept", ""):
            stream = self._stream(run_id, after)
            return StreamingResponse(stream, media_type="text/event-stream")
        found = [event for event in self.events[run_id] if event["position"] > after]
        page = found[: min(limit or self.page_size, self.page_size)]
        return JSONResponse({"events": page, "next": page[-1]["position"] if page else after})

    async def _stream(self, run_id: str, after: int) -> AsyncIterator[str]:
        sent = 0
        yield ": ping\n\n"
        while True:
            for event in [e for e in self.events[run_id] if e["position"] > after]:
                after = event["position"]
                text = json.dumps(event, ensure_ascii=False)
                yield f"id: {after}\nevent: {event['type']}\ndata: {text}\n\n"
                sent += 1
                if event["type"] in ENDS or sent == self.cut_after:
                    return
            await asyncio.sleep(0.01)


class Served:
    """A FakeDriver behind a real port; it can be stopped and started again on it."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Answer requests; returns once the server does."""
        if self._socket.fileno() == -1:
            self._socket = socket.create_server(("127.0.0.1", self.port))
        config = uvicorn.Config(
            self.driver.app, log_level="critical", timeout_graceful_shutdown=0, lifespan="off"
        )
        server = self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()

    def stop(self) -> None:
        """Go away: connections are cut, new ones refused."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(timeout=10)
            self._server = None
        self._socket.close()


@contextlib.contextmanager
def serve(driver: FakeDriver) -> Generator[Served]:
    """Serve a FakeDriver on a free port."""
    served = Served(driver)
    served.start()
    try:
        yield served
    finally:
        served.stop()
