"""What a trial of a task costs beside its commands, with every real service running.

    python benchmarks/tasks.py [TRIALS] [--concurrency 16] [--provider bubblewrap]

One batch of trials of a small task (the oracle writes a file, the test compares it), played and
graded in sandboxes of their own. None may be lost, and nothing may be left of them. Prints one JSON
line a figure; ``overhead`` is all CPU of all services and sandboxes less that of the task's own
commands, which is measured apart. Ray's own CPU is not counted: nothing is trained.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from trialog.cli.stack.options import StackOptions
from trialog.cli.stack.stack import Stack
from trialog.client import AsyncTrialogClient

SERVICES = ("driver-1", "sandbox-1", "judge-1", "trainer-1", "postgres", "nats")
WARM_UP = 16
IMAGE = "base"
SOLVE = "#!/bin/sh\necho 42 > answer.txt\n"
TEST = """#!/bin/sh
if [ "$(cat /app/answer.txt)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
TOML = f'schema_version = "1.4"\n[environment]\ndocker_image = "{IMAGE}"\nworkdir = "/app"\n'


def task(folder: Path) -> Path:
    """Write the task and return its folder."""
    files = {
        "task.toml": TOML,
        "instruction.md": "Write 42 into answer.txt.\n",
        "solution/solve.sh": SOLVE,
        "tests/test.sh": TEST,
    }
    for path, text in files.items():
        place = folder / "small" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder / "small"


def spec(folder: Path, trials: int, provider: str) -> dict[str, Any]:
    """Return a run of one batch."""
    return {
        "tasks": {"path": str(folder)},
        "agent": "oracle",
        "learner": "none",
        "rubric": "task",
        "n_steps": 1,
        "prompts_per_step": 1,
        "n_samples": trials,
        "provider": provider,
        "images": {} if provider == "docker" else {IMAGE: "host"},
    }


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its children, living and reaped."""
    own = process.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in process.children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def commands_ms(rounds: int = 50) -> float:
    """Return what the task's own commands take of the processor, run bare."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for script, text in (("solve.sh", SOLVE), ("test.sh", TEST)):
            (folder / script).write_text(text.replace("/logs/verifier", name).replace("/app", name))
            (folder / script).chmod(0o755)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(rounds):
            # The scripts alone: what starts them and keeps what they say is ours.
            for script in ("./solve.sh", "./test.sh"):
                subprocess.run([script], cwd=folder, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent_s / rounds * 1000


def left_behind(folder: Path) -> list[str]:
    """Return what is left of sandboxes: folders, mounts, processes, cgroups."""
    found = [str(path) for name in ("run/*", "scratch/*/[!.]*") for path in folder.glob(name)]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    for process in psutil.process_iter(["name", "cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if "bwrap" in words and str(folder) in words:
            found.append(words[:100])
    return found + [str(group) for parent in own_groups() for group in parent.glob("trialog-*")]


def own_groups() -> list[Path]:
    """Return the control groups that this process is in: its sandboxes have theirs below."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    return [Path(f"/sys/fs/cgroup/{names}{path}") for _, names, path in lines if names]


async def at_last(folder: Path) -> list[str]:
    """Return what is left a moment later: a trial is on the log before its folders are gone."""
    left: list[str] = []
    for _ in range(200):
        if not (left := left_behind(folder)):
            return []
        await asyncio.sleep(0.05)
    return left


async def one_run(client: AsyncTrialogClient, settings: dict[str, Any]) -> dict[str, Any]:
    """Run to the end."""
    run: dict[str, Any] = dict(await client.create_run(settings))
    while run["state"] == "running":
        await asyncio.sleep(0.2)
        run = dict(await client.get_run(run["run_id"]))
    assert run["state"] == "completed", run
    return run


async def bench(trials: int, concurrency: int, provider: str) -> None:
    """Start a stack, warm it up, measure and print."""
    options = StackOptions(sandboxes=1, judges=1, sandbox_concurrency=concurrency)
    with tempfile.TemporaryDirectory() as name:
        folder = task(Path(name))
        async with Stack(options) as stack:
            await stack.ready(120)
            processes = {each: psutil.Process(stack.processes[each].pid) for each in SERVICES}
            async with AsyncTrialogClient(stack.api_url) as client:
                await one_run(client, spec(folder, WARM_UP, provider))
                before = {each: cpu_s(process) for each, process in processes.items()}
                begun = time.perf_counter()
                run = await one_run(client, spec(folder, trials, provider))
                took_s = time.perf_counter() - begun
                spent = {each: cpu_s(processes[each]) - before[each] for each in SERVICES}
            judged = run["steps"][0]["n_judged"]
            left = await at_last(stack.layout.sandboxes)
    assert judged == trials, run
    commands = commands_ms()
    total = sum(spent.values()) / trials * 1000
    figures = {f"cpu_{each}_ms": value / trials * 1000 for each, value in spent.items()}
    figures |= {
        "trials_per_s": trials / took_s,
        "cpu_ms_per_trial": total,
        "commands_ms_per_trial": commands,
        "overhead_ms_per_trial": total - commands,
        "lost": float(trials - judged),
        "left_behind": float(len(left)),
    }
    how = f"{trials} trials of a small task, {concurrency} at a time, {provider}"
    how += f", {time.strftime('%F')}"
    for figure, value in figures.items():
        print(json.dumps({"figure": figure, "value": round(value, 3), "how": how}), flush=True)
    for path in left:
        print(path)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trials", nargs="?", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--provider", default="bubblewrap")
    arguments = parser.parse_args()
    asyncio.run(bench(arguments.trials, arguments.concurrency, arguments.provider))


if __name__ == "__main__":
    main()
