"""How many trials a second go through every real service, and what each costs in CPU.

``python benchmarks/throughput.py [TRIALS] [--runs N]``: one step of no-op trials (2 KB
trajectories, the null provider, an in-process criterion); the rest is as in production: separate
processes, log, claims, bus and one optimizer step on Ray. Prints one JSON line a figure: the median
of the runs. Ray's own CPU is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import statistics
import time
from typing import Any

import asyncpg
import psutil
from trialog.cli.stack.options import StackOptions
from trialog.cli.stack.stack import Stack
from trialog.client import AsyncTrialogClient

SERVICES = ("driver-1", "sandbox-1", "judge-1", "trainer-1", "postgres", "nats")
WARM_UP = 100
SIZE = """
select sum(pg_total_relation_size(c.oid)) from pg_class c
where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace
"""


def spec(trials: int) -> dict[str, Any]:
    """Return a run of one step with this many no-op trials."""
    return {
        "n_steps": 1,
        "n_worlds": 1,
        "prompts_per_step": trials,
        "n_samples": 1,
        "agent": "noop",
        "provider": "null",
        "rubric": "instant",
    }


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its children, living and reaped."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
        if one is process:
            total += times.children_user + times.children_system
    return total


def at(event: dict[str, Any]) -> float:
    """Return an event's recorded time in seconds."""
    return datetime.datetime.fromisoformat(event["recorded_at"]).timestamp()


async def one_run(client: AsyncTrialogClient, trials: int) -> list[dict[str, Any]]:
    """Run to the end and return the run's events."""
    run: dict[str, Any] = dict(await client.create_run(spec(trials)))
    while run["state"] == "running":
        await asyncio.sleep(0.2)
        run = dict(await client.get_run(run["run_id"]))
    assert run["state"] == "completed", run
    return [dict(event) async for event in client.iter_events(run["run_id"])]


def measured(events: list[dict[str, Any]], trials: int) -> dict[str, float]:
    """Return rates and latencies by the log's own times."""
    by_type: dict[str, dict[str, float]] = {}
    for event in events:
        subject = event["data"].get("trial_id", "")
        by_type.setdefault(event["type"], {})[subject] = at(event)
    judged, recorded = by_type["Judged"], by_type["TrajectoryRecorded"]
    assert len(judged) == trials
    first = min(by_type["TrialRequested"].values())
    waits = sorted((judged[t] - recorded[t]) * 1000 for t in judged)
    return {
        "trials_per_s": trials / (max(judged.values()) - first),
        "step_s": max(by_type["StepApplied"].values()) - first,
        "recorded_to_judged_p50_ms": waits[len(waits) // 2],
        "recorded_to_judged_p99_ms": waits[int(len(waits) * 0.99)],
    }


async def bench(trials: int, runs: int) -> None:
    """Start a stack, warm it up, measure and print."""
    options = StackOptions(sandboxes=1, judges=1, sandbox_concurrency=64, judge_concurrency=64)
    async with Stack(options) as stack:
        await stack.ready(120)
        processes = {name: psutil.Process(stack.processes[name].pid) for name in SERVICES}
        admin = await asyncpg.connect(stack.admin_database_url)
        rows: list[dict[str, float]] = []
        async with AsyncTrialogClient(stack.api_url) as client:
            await one_run(client, WARM_UP)
            for _ in range(runs):
                size = int(await admin.fetchval(SIZE))
                before = {name: cpu_s(process) for name, process in processes.items()}
                events = await one_run(client, trials)
                spent = {name: cpu_s(processes[name]) - before[name] for name in SERVICES}
                row = measured(events, trials)
                row |= {f"cpu_{name}_ms": s / trials * 1000 for name, s in spent.items()}
                row["cpu_ms_per_trial"] = sum(spent.values()) / trials * 1000
                row["bytes_per_trial"] = (int(await admin.fetchval(SIZE)) - size) / trials
                rows.append(row)
        await admin.close()
    how = (
        f"median of {runs} runs of {trials} no-op trials, 1 sandbox, 1 judge, {time.strftime('%F')}"
    )
    for figure in rows[0]:
        values = [row[figure] for row in rows]
        line = {
            "figure": figure,
            "value": round(statistics.median(values), 3),
            "min": round(min(values), 3),
            "max": round(max(values), 3),
            "how": how,
        }
        print(json.dumps(line), flush=True)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trials", nargs="?", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    asyncio.run(bench(arguments.trials, arguments.runs))


if __name__ == "__main__":
    main()
