"""What a trial's sandbox costs the runtime: start, commands, save, start again from it, destroy.

    python benchmarks/tasks_sandbox.py [--lives 100] [--concurrent 16]

CPU is this process's and its children's (launcher, bubblewrap, PID 1, the commands themselves:
/bin/true, so next to nothing). Prints one JSON line a figure: {figure, value, unit, how}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.images import ImageSandbox, ImageSpec, Recipe

GOAL_MS = 60.0
COMMANDS = 5
LIMIT_BYTES = 64 << 20


def report(figure: str, value: float, unit: str, how: str) -> None:
    """Print one figure."""
    print(json.dumps({"figure": figure, "value": round(value, 3), "unit": unit, "how": how}))


def cpu_ms() -> float:
    """Return the CPU that this process and its ended children took so far."""
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in spent) * 1000


async def life(provider: BubblewrapProvider, spec: ImageSpec, name: str, scratch: Path) -> None:
    """Do what a small trial does with its sandboxes, grading in a fresh one."""
    sandbox = await provider.start(name, spec)
    for at in range(COMMANDS):
        await sandbox.exec(f"{at}", ["/bin/true"])
    await sandbox.write("/app/answer", b"42\n")
    await sandbox.kill_all()
    state = scratch / f"{name}.state"
    await sandbox.save(state, LIMIT_BYTES)
    await sandbox.destroy()
    grader = await provider.start(f"{name}-grader", ImageSpec(spec.image, states=(state,)))
    await grader.upload(scratch / "tests", "/tests")
    await grader.exec("test", ["sh", "/tests/test.sh"])
    await grader.read("/logs/verifier/reward.txt", 100)
    await grader.destroy()
    await asyncio.to_thread(state.unlink)


async def parts(provider: BubblewrapProvider, spec: ImageSpec, scratch: Path, count: int) -> None:
    """Time each part of a life by itself, one after another."""
    sandboxes: list[ImageSandbox] = []

    async def start(at: int) -> None:
        sandboxes.append(await provider.start(f"part-{at}", spec))

    async def save(at: int) -> None:
        await sandboxes[at].save(scratch / "part", LIMIT_BYTES)

    steps: dict[str, Callable[[int], Awaitable[object]]] = {
        "start": start,
        "exec": lambda at: sandboxes[at].exec("1", ["/bin/true"]),
        "write": lambda at: sandboxes[at].write("/app/x", b"x"),
        "save": save,
        "destroy": lambda at: sandboxes[at].destroy(),
    }
    for name, step in steps.items():
        walls: list[float] = []
        before = cpu_ms()
        for at in range(count):
            began = time.perf_counter()
            await step(at)
            walls.append((time.perf_counter() - began) * 1000)
        how = f"{count} x {name}, one after another, on an image from the host's programs"
        report(f"image_sandbox_{name}_cpu_ms", (cpu_ms() - before) / count, "ms", how)
        report(f"image_sandbox_{name}_p50_ms", statistics.median(walls), "ms", how)


async def main(options: argparse.Namespace) -> None:
    """Take all figures."""
    with tempfile.TemporaryDirectory(prefix="trialog-bench-") as made:
        scratch = Path(made)
        (scratch / "tests").mkdir()
        test = "mkdir -p /logs/verifier; cmp -s /app/answer /app/answer && echo 1 > /logs/verifier/"
        (scratch / "tests/test.sh").write_text(f"{test}reward.txt\n")
        provider = BubblewrapProvider(scratch / "p", orphan_s=0)
        recipe = Recipe(scratch, None, docker_image="base", images={"base": "host"})
        spec = ImageSpec((await provider.build(recipe)).digest)
        await life(provider, spec, "warm", scratch)
        await parts(provider, spec, scratch, 20)
        names = iter(range(options.lives))

        async def lane() -> None:
            for at in names:
                await life(provider, spec, f"life-{at}", scratch)

        before, began = cpu_ms(), time.perf_counter()
        await asyncio.gather(*(lane() for _ in range(options.concurrent)))
        took_s, spent = time.perf_counter() - began, (cpu_ms() - before) / options.lives
        how = (
            f"{options.lives} x start, {COMMANDS} commands, save, start from it, grade, destroy; "
            f"{options.concurrent} at a time, {os.cpu_count()} cores; goal {GOAL_MS:g}"
        )
        report("task_sandboxes_cpu_ms", spent, "ms", how)
        report("task_sandboxes_per_s", options.lives / took_s, "1/s", how)
        await provider.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Time sandboxes of tasks.")
    parser.add_argument("--lives", type=int, default=100)
    parser.add_argument("--concurrent", type=int, default=16)
    asyncio.run(main(parser.parse_args()))
