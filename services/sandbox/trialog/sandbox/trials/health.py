"""Waiting until an environment is healthy, as its healthcheck says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from trialog.proto.tasks.config import Healthcheck

NAME = "HealthcheckError"
Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class UnhealthyError(Exception):
    """The healthcheck failed as often as it may; the message says what it last said."""


async def until_healthy(
    check: Healthcheck,
    run: Callable[[int], Awaitable[tuple[int, str]]],
    *,
    clock: Clock = time.monotonic,
    sleep: Sleep = asyncio.sleep,
) -> int:
    """Run the check until it passes; return how often it ran.

    ``run`` is given a number that grows, and returns the exit code and what was said. Failures in
    the start period do not count. Raises UnhealthyError after ``retries`` failures that do.
    """
    begun = clock()
    failures = n = 0
    while True:
        starting = clock() - begun < check.start_period_sec
        code, said = await run(n)
        n += 1
        if code == 0:
            return n
        if starting:
            await sleep(check.start_interval_sec)
            continue
        failures += 1
        if failures >= check.retries:
            raise UnhealthyError(
                f"the healthcheck failed {failures} times in a row, last with exit code {code}: "
                f"{check.command[:100]!r} {said}".rstrip()
            )
        await sleep(check.interval_sec)
