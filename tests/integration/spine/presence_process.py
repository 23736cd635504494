"""A process that is there until it is killed: says its incarnation, and every later one."""

from __future__ import annotations

import asyncio
import sys

from trialog.spine import telemetry
from trialog.spine.presence import Presence, new_incarnation


def say(incarnation: int) -> None:
    """Write a line for the test."""
    sys.stdout.write(f"{incarnation}\n")
    sys.stdout.flush()


async def main(url: str) -> None:
    """Join and keep."""
    telemetry.configure("test", "CRITICAL")
    presence = Presence(url, "test", new_incarnation(), say)
    await presence.join()
    say(presence.incarnation)
    await presence.keep()


asyncio.run(main(sys.argv[1]))
