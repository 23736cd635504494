"""How fast sandboxes are: fork and first command of a big world, and whole lives a second.

    python benchmarks/sandbox.py [--world-mb 1024] [--files 20000] [--forks 200] [--lives 300]

Prints one JSON line a figure: {figure, value, unit, how}.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import hashlib
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.provider import SandboxSpec
from trialog.sandbox.worlds.archive import pack

CONCURRENT_LIVES = 8


def report(figure: str, value: float, unit: str, how: str) -> None:
    """Print one figure."""
    print(json.dumps({"figure": figure, "value": round(value, 3), "unit": unit, "how": how}))


def big_world(megabytes: int, files: int) -> bytes:
    """Return a world of so many files of even size, with content that does not compress."""
    block = random.Random(1).randbytes(megabytes * (1 << 20) // files)
    return pack({f"d{i // 200}/f{i}.bin": i.to_bytes(8) + block[8:] for i in range(files)})


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Return the milliseconds that a piece of work takes."""
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


def percentiles(name: str, samples_ms: list[float], how: str) -> None:
    """Report the median and the 99th percentile."""
    ranked = statistics.quantiles(samples_ms, n=100, method="inclusive")
    report(f"{name}_p50_ms", ranked[49], "ms", how)
    report(f"{name}_p99_ms", ranked[98], "ms", how)


async def forks(provider: BubblewrapProvider, spec: SandboxSpec, count: int, how: str) -> None:
    """Time create plus a first command that reads from the world, one sandbox after another."""
    samples: list[float] = []
    for i in range(count):
        name = f"fork-{i}"

        async def first_command(name: str = name) -> None:
            sandbox = await provider.create(name, spec)
            read = ["sh", "-c", "head -c 8 d0/f0.bin && echo x > new"]
            result = await sandbox.exec("first", read)
            assert result.exit_code == 0, result

        samples.append(await timed(first_command))
        await (await provider.attach(name)).destroy()
    percentiles("sandbox_fork_first_command", samples, f"{count} forks of {how}, one at a time")


async def execs(provider: BubblewrapProvider, spec: SandboxSpec, count: int) -> None:
    """Time commands in one live sandbox."""
    sandbox = await provider.create("exec", spec)
    samples = [
        await timed(lambda i=i: sandbox.exec(f"{i}", ["/usr/bin/true"])) for i in range(count)
    ]
    await sandbox.destroy()
    percentiles("sandbox_exec", samples, f"{count} x /usr/bin/true in one live sandbox")


async def lives(provider: BubblewrapProvider, spec: SandboxSpec, count: int) -> None:
    """Count whole lives (create, one command, destroy) a second, several at a time."""
    names = iter(range(count))

    async def live() -> None:
        for i in names:
            sandbox = await provider.create(f"life-{i}", spec)
            await sandbox.exec("only", ["/usr/bin/true"])
            await sandbox.destroy()

    took_ms = await timed(lambda: asyncio.gather(*(live() for _ in range(CONCURRENT_LIVES))))
    how = f"{count} x create, exec, destroy, {CONCURRENT_LIVES} at a time, {os.cpu_count()} cores"
    report("sandbox_lives_per_s", count / took_ms * 1000, "1/s", how)


async def main(options: argparse.Namespace) -> None:
    """Make the world, then take all figures."""
    with tempfile.TemporaryDirectory(prefix="trialog-bench-") as root:
        provider = BubblewrapProvider(Path(root))
        tar = big_world(options.world_mb, options.files)
        spec = SandboxSpec(hashlib.sha256(tar).hexdigest())
        how = f"a generated world of {options.world_mb} MB in {options.files} files"
        prepared_ms = await timed(functools.partial(provider.prepare, spec.world_digest, tar))
        report("sandbox_world_prepare_s", prepared_ms / 1000, "s", f"unpack and sync {how}, once")
        del tar
        await provider.probe()
        await forks(provider, spec, options.forks, how)
        await execs(provider, spec, options.forks)
        await lives(provider, spec, options.lives)
        await provider.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Time sandboxes.")
    parser.add_argument("--world-mb", type=int, default=1024)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--forks", type=int, default=200)
    parser.add_argument("--lives", type=int, default=300)
    asyncio.run(main(parser.parse_args()))
