"""What forks of a long run cost before their first new work, and how that grows.

    python benchmarks/fork.py [--steps 100] [--prompts 200] [--times 3]

Makes a run of steps x prompts no-op trials (the null provider, an in-process criterion) on the
embedded stack, and one of half as many steps. Of each: how long a dry run takes, and, by the log's
own times, how long after its POST a fork offers its first new work, or is complete when there is
none. Prints one JSON line a figure, and for each pair of sizes their quotient: 2 is linear.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from trialog.cli.stack.options import StackOptions
from trialog.cli.stack.stack import Stack
from trialog.client import AsyncTrialogClient, Conflict
from trialog.client.models import ENDED, Event
from trialog.proto import events as ev
from trialog.proto.work import work_of

LIMIT_S = 900.0
POLL_S = 0.05


class Fork(NamedTuple):
    """A kind of fork: what it changes, and in which mode."""

    changes: dict[str, Any]
    rubric: str | None = None
    mode: Any = None


class Parent(NamedTuple):
    """A run to fork."""

    run_id: str
    steps: int
    prompts: int

    def __str__(self) -> str:
        """Return its size."""
        return f"{self.steps} steps x {self.prompts} trials"


def forks(parent: Parent) -> dict[str, Fork]:
    """Return the forks that are measured, by name."""
    return {
        "unchanged": Fork({}),
        "longer": Fork({"n_steps": parent.steps + 1}),
        "learner_of_last_step": Fork({"from_step": parent.steps - 1, "lr": 1.0}),
        "rubric": Fork({}, rubric="v1"),
        "rescore": Fork({}, rubric="v1", mode="rescore"),
    }


def say(figure: str, values: list[float], unit: str, how: str) -> float:
    """Print one figure, the median of some values, and return it."""
    value = statistics.median(values)
    spread = {"min": round(min(values), 4), "max": round(max(values), 4)} if values[1:] else {}
    line = {"figure": figure, "value": round(value, 4), "unit": unit} | spread | {"how": how}
    print(json.dumps(line), flush=True)
    return value


def at(event: Event) -> float:
    """Return an event's recorded time in seconds."""
    return datetime.datetime.fromisoformat(event["recorded_at"]).timestamp()


async def ended(client: AsyncTrialogClient, run_id: str) -> str:
    """Wait for a run's end and return its state."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            state = (await client.get_run(run_id))["state"]
            if state in ENDED:
                return state
            await asyncio.sleep(POLL_S)


async def make(client: AsyncTrialogClient, steps: int, prompts: int) -> Parent:
    """Make a run to fork."""
    spec: dict[str, Any] = {
        "n_steps": steps,
        "n_worlds": 1,
        "prompts_per_step": prompts,
        "n_samples": 1,
        "agent": "noop",
        "provider": "null",
        "rubric": "instant",
        "judge_latency_s": 0,
    }
    started = time.perf_counter()
    run_id = (await client.create_run(spec))["run_id"]
    assert await ended(client, run_id) == "completed"
    parent = Parent(run_id, steps, prompts)
    how = f"a run of {parent}: no-op agent, null provider, in-process criterion"
    say(f"make_{steps}_steps", [time.perf_counter() - started], "s", how)
    return parent


async def plan_s(client: AsyncTrialogClient, parent: Parent, fork: Fork) -> float:
    """Return how long a dry run takes."""
    started = time.perf_counter()
    await client.plan_fork(parent.run_id, fork.changes, rubric=fork.rubric, mode=fork.mode)
    return time.perf_counter() - started


async def start_s(client: AsyncTrialogClient, parent: Parent, fork: Fork) -> float:
    """Make a fork; return how long after its POST it offered work that nobody has done, or was
    complete. Its work is not waited for."""
    made = await client.fork(parent.run_id, fork.changes, rubric=fork.rubric, mode=fork.mode)
    async with asyncio.timeout(LIMIT_S):
        took_s = await first_work(client, made["run_id"])
    with contextlib.suppress(Conflict):  # it has ended by itself
        await client.cancel(made["run_id"])
    await ended(client, made["run_id"])
    return took_s


async def first_work(client: AsyncTrialogClient, run_id: str) -> float:
    """Return recorded seconds from a fork's POST to its first new work, or its completion."""
    asked_at, after = None, 0
    while True:
        page = await client.list_events(run_id, after=after, limit=1000)
        for event in page["events"]:
            after, asked_at = event["position"], asked_at or at(event)
            fact = ev.decode(event["type"], event["schema_version"], json.dumps(event["data"]))
            if work_of(run_id, fact) is not None or isinstance(fact, ev.RunCompleted):
                return at(event) - asked_at
        if not page["events"]:
            await asyncio.sleep(POLL_S)


Measure = Callable[[AsyncTrialogClient, Parent, Fork], Awaitable[float]]
MEASURES: dict[str, tuple[Measure, str]] = {
    "plan": (plan_s, "a dry run, from request to answer"),
    "start": (start_s, "from a fork's POST to its first new work or its completion, recorded"),
}


async def measured(
    client: AsyncTrialogClient, parent: Parent, times: int
) -> dict[tuple[str, str], float]:
    """Print the figures of all forks of one parent, and return them."""
    found: dict[tuple[str, str], float] = {}
    for name, fork in forks(parent).items():
        for what, (measure, how) in MEASURES.items():
            values = [await measure(client, parent, fork) for _ in range(times)]
            text = f"{how}; parent of {parent}, median of {times}"
            figure = f"{what}_{name}_{parent.steps}_steps"
            found[what, name] = say(figure, values, "s", text)
    return found


async def bench(steps: int, prompts: int, times: int) -> None:
    """Start a stack, make both runs, fork them and print."""
    options = StackOptions(sandboxes=1, judges=1, sandbox_concurrency=64, judge_concurrency=64)
    async with Stack(options) as stack:
        await stack.ready(120)
        async with AsyncTrialogClient(stack.api_url) as client:
            small = await make(client, steps // 2, prompts)
            half = await measured(client, small, times)
            large = await make(client, steps, prompts)
            whole = await measured(client, large, times)
    for (what, name), value in whole.items():
        how = f"{what}_{name} at {large} against {small}"
        say(f"growth_{what}_{name}", [value / half[what, name]], "x", how)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100, help="at least 2")
    parser.add_argument("--prompts", type=int, default=200, help="trials a step")
    parser.add_argument("--times", type=int, default=3, help="measurements a figure")
    arguments = parser.parse_args()
    asyncio.run(bench(max(2, arguments.steps), arguments.prompts, arguments.times))


if __name__ == "__main__":
    main()
