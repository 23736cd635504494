"""Every real service, for a whole test session, and runs seen through the API."""

from __future__ import annotations

import datetime
import re
import signal
import time
from collections import Counter
from collections.abc import Generator
from typing import Any

import httpx
import pytest
from support.stack import StackThread
from trialog.cli.stack.options import StackOptions

QUICK: dict[str, Any] = {"tool_latency_s": 0, "judge_latency_s": 0}
_ENDED = ("completed", "failed", "cancelled")


class RunSeen:
    """A run, asked for through the API; everything about it is read back from there."""

    def __init__(self, http: httpx.Client, run_id: str) -> None:
        self._http, self.run_id = http, run_id

    def get(self, path: str = "", **query: Any) -> Any:
        """GET below the run; waits out a driver that is being restarted."""
        return patiently(self._http, "GET", f"/runs/{self.run_id}{path}", params=query)

    def fork(self, settings: dict[str, Any] | None = None, /, **query: Any) -> RunSeen:
        """Fork the run: settings in the body, the rest in the address."""
        headers = {"Idempotency-Key": f"test-{time.time_ns()}"}
        how: dict[str, Any] = {"params": query, "headers": headers, "json": settings or {}}
        made = patiently(self._http, "POST", f"/runs/{self.run_id}/fork", **how)
        return RunSeen(self._http, made["run_id"])

    def post(self, verb: str, body: dict[str, Any] | None = None) -> Any:
        """POST cancel, pause or resume."""
        how = {} if body is None else {"json": body}
        return patiently(self._http, "POST", f"/runs/{self.run_id}/{verb}", **how)

    def wait(self, *states: str, timeout_s: float = 90) -> dict[str, Any]:
        """Wait until the run is in one of the states (default: ended) and return it."""
        deadline = time.monotonic() + timeout_s
        while (run := self.get())["state"] not in (states or _ENDED):
            assert time.monotonic() < deadline, f"{self.run_id} is still {run['state']}: {run}"
            time.sleep(0.05)
        return run

    def wait_for(self, kind: str, timeout_s: float = 60, **data: Any) -> dict[str, Any]:
        """Wait for an event of a type with this data and return it."""
        deadline, after = time.monotonic() + timeout_s, 0
        while True:
            page = self.get("/events", after=after, limit=1000)
            for event in page["events"]:
                after = event["position"]
                if event["type"] == kind and data.items() <= event["data"].items():
                    return event
            assert time.monotonic() < deadline, f"no {kind} {data} in {timeout_s} s"
            if not page["events"]:
                time.sleep(0.02)

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the run's events of some types (default: all), in order."""
        found: list[dict[str, Any]] = []
        after = 0
        while page := self.get("/events", after=after, limit=1000)["events"]:
            found += [event for event in page if not kinds or event["type"] in kinds]
            after = page[-1]["position"]
        return found

    def trials(self) -> dict[str, dict[str, Any]]:
        """Return all trials by id."""
        found: dict[str, dict[str, Any]] = {}
        cursor = None
        while True:
            query = {"limit": 500} | ({"cursor": cursor} if cursor else {})
            page = self.get("/trials", **query)
            found |= {trial["trial_id"]: trial for trial in page["trials"]}
            if not (cursor := page["next_cursor"]):
                return found

    def prior(self, version: int) -> dict[str, list[float]]:
        """Return a version's weights, unrounded."""
        return self.get(f"/weights/{version}")["doc_prior"]

    def slots(self, kind: str, key: str = "trial_id") -> Counter[str]:
        """Count the events of a type by what they are about."""
        return Counter(event["data"][key] for event in self.events(kind))


def at(event: dict[str, Any]) -> float:
    """Return an event's recorded time, in seconds since the epoch."""
    return datetime.datetime.fromisoformat(event["recorded_at"]).timestamp()


def patiently(http: httpx.Client, method: str, url: str, **how: Any) -> Any:
    """Send a request until a driver answers it; a restart takes about two seconds."""
    deadline = time.monotonic() + 30
    while True:
        try:
            response = http.request(method, url, **how)
            if response.status_code not in (502, 503) or time.monotonic() > deadline:
                response.raise_for_status()
                return response.json()
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


class Cluster(StackThread):
    """A stack with every service. Its judge counts its calls."""

    def __init__(self, options: StackOptions) -> None:
        super().__init__(options)
        self.http: httpx.Client

    def start(self) -> None:
        """Start it; returns once every service is ready."""
        super().start()
        self.http = httpx.Client(base_url=self.stack.api_url, timeout=30)

    def stop(self) -> None:
        """Stop everything."""
        self.http.close()
        super().stop()

    def run(self, **settings: Any) -> RunSeen:
        """Ask for a run."""
        headers = {"Idempotency-Key": f"test-{time.time_ns()}"}
        made = patiently(self.http, "POST", "/runs", json=settings, headers=headers)
        return RunSeen(self.http, made["run_id"])

    def kill_and_wait(self, name: str, number: signal.Signals = signal.SIGKILL) -> float:
        """Kill a process, wait for its end, and return when that was; the stack restarts it."""
        pid = self.stack.kill(name, number)
        assert pid is not None, f"{name} is between two lives"
        self.call(self.stack.exited(name, pid))
        return time.time()

    def held(self, name: str) -> float:
        """Return how many pieces of trial work a process holds now, by its own metrics."""
        port = self.stack.ports.port(name)
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
        found = re.search(r'trialog_work_held\{kind="trial"\} (\S+)', text)
        return float(found[1]) if found else 0.0

    def judge_calls(self) -> Counter[str]:
        """Return the stand-in judge's own count of its calls, by idempotency key."""
        port = self.stack.ports.port("standin")
        answer = httpx.get(f"http://127.0.0.1:{port}/v1/calls", timeout=10)
        return Counter(answer.json()["by_key"])

    def running(self, kind: str) -> list[str]:
        """Return the names of a kind's processes that run now, in order."""
        return sorted(
            name
            for name, process in self.stack.processes.items()
            if name.startswith(f"{kind}-") and process.pid is not None
        )

    def scale(self, kind: str, count: int) -> None:
        """Start or stop processes until that many of a kind run."""
        names = self.running(kind)
        for name in names[count:]:
            self.call(self.stack.stop_service(name))
        for _ in range(count - len(names)):
            self.call(self.stack.start_service(kind))
        self.call(self.stack.ready(60))


@pytest.fixture(scope="session")
def cluster() -> Generator[Cluster]:
    """Every service with two sandboxes and two judges, started once a session."""
    running = Cluster(StackOptions(sandboxes=2, judges=2))
    running.start()
    yield running
    running.stop()
