"""Plays task folders through our own worker, as ``harbor_runner`` does through the package."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import dockerd
from support.docker_sandboxes import docker_provider
from support.task_worker import TaskWorker
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider

AT_ONCE = 4
HOST: Mapping[str, str] = {dockerd.BASE: "host"}


@dataclass(frozen=True, slots=True)
class Seen:
    """How a trial ended here: what its verifier gave, the reward that counts, the class of what
    went wrong (with the agent, where there is a mode; else it was not graded), and the mode."""

    rewards: dict[str, float] | None
    reward: float | None
    error: str | None
    mode: str | None


@contextlib.asynccontextmanager
async def worker(
    provider: str, folder: Path, images: Mapping[str, str] = HOST
) -> AsyncGenerator[TaskWorker]:
    """A worker with a provider that leaves nothing; bubblewrap takes the host's /usr as the base
    where nothing else is said, docker the daemon's image."""
    root = folder / "provider"
    if provider == "docker":
        async with docker_provider(root) as containers:
            yield TaskWorker(containers, folder, {}, provider_name="docker")
        return
    sandboxes = BubblewrapProvider(root, orphan_s=0)
    try:
        yield TaskWorker(sandboxes, folder, dict(images))
    finally:
        await sandboxes.close()
    assert list((root / "run").iterdir()) == []


def texts(task: Path) -> dict[str, str]:
    """Return a task's files by path, without what is only ours."""
    paths = (path for path in sorted(task.rglob("*")) if stat.S_ISREG(path.lstat().st_mode))
    found = {str(path.relative_to(task)): path.read_text() for path in paths}
    return {path: text for path, text in found.items() if path != "expected.json"}


async def play(
    place: TaskWorker, tasks: Mapping[str, Mapping[str, str]], **settings: Any
) -> dict[str, Seen]:
    """Return how one trial of each task ended, by the task's name."""
    run_id = await place.ask(*tasks.values(), **settings)
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> Seen:
        async with turn:
            ended = await place.play(run_id, f"s0-p{number}-n0")
        if ended.failure is not None:
            return Seen(None, None, ended.failure.error, None)
        assert ended.verified is not None
        fact = ended.verified
        return Seen(fact.rewards, fact.reward, fact.error or None, fact.mode)

    seen = await asyncio.gather(*(one(number) for number in range(len(tasks))))
    return dict(zip(tasks, seen, strict=True))
