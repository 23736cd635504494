"""Processes of a stack as the operating system shows them."""

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path

import psutil
from trialog.cli.stack.reaper import find


def handles(pids: Iterable[int]) -> list[psutil.Process]:
    """Return a handle for each pid that still lives: Ray's parts come and go."""
    found: list[psutil.Process] = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def parts_of(root: Path, name: str | None = None) -> list[psutil.Process]:
    """Return the stack's processes, or those of its process `name`."""
    return handles(one.pid for one in find(root, name))


async def survivors(processes: list[psutil.Process], timeout_s: float = 20.0) -> list[str]:
    """Return what lives on after the timeout; zombies wait for their init only and do not count."""
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, timeout_s)
    names: list[str] = []
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                names.append(str(process))
    return names
