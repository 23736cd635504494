"""A trial's second worker: another provider over the same folder, as after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import dockerd
from support.docker_sandboxes import states
from support.task_worker import TaskWorker, a_task
from support.waiting import eventually
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.docker.provider import DockerProvider
from trialog.sandbox.images import ImageProvider

SERVICE = "(while read asked < /tmp/ask; do echo $asked > /tmp/told; done) > /dev/null 2>&1 &"
SOLVE = f"mkfifo /tmp/ask /tmp/told\n{SERVICE}\necho 1 > answer.txt"
ASKS = "echo 0.5 > /tmp/ask; cat /tmp/told > /logs/verifier/reward.txt"


@dataclass
class Host:
    """A host's folder of sandboxes; ``make`` is a worker's provider with an orphan time."""

    root: Path
    make: Callable[[float], ImageProvider]
    name: str

    def task(self, solve: str, test: str) -> dict[str, str]:
        task = a_task(solve, test)
        if self.name == "docker":
            task["task.toml"] = task["task.toml"].replace('"base"', f'"{dockerd.BASE}"')
        return task

    def worker(self, provider: ImageProvider, folder: Path) -> TaskWorker:
        images = {} if self.name == "docker" else {"base": "host"}
        return TaskWorker(provider, folder, images, provider_name=self.name)

    def left(self) -> list[str]:
        run = self.root / "run"
        return [*(path.name for path in run.glob("*")), *self.containers()]

    def containers(self) -> list[str]:
        return states(self.root) if self.name == "docker" else []


@pytest.fixture(params=["bubblewrap", pytest.param("docker", marks=dockerd.MARKS)])
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Host]:
    root = tmp_path / "provider"

    def make(orphan_s: float) -> ImageProvider:
        if request.param == "docker":
            return DockerProvider(root, address=dockerd.address(), orphan_ttl_s=orphan_s)
        return BubblewrapProvider(root, orphan_s=orphan_s)

    yield Host(root, make, request.param)
    last = make(0)
    await eventually(lambda: _swept(last))
    await last.close()


async def _swept(provider: ImageProvider) -> bool:
    await provider.sweep([])
    return await provider.sweep([]) == []


async def test_services_wait_for_the_next_worker(host: Host, tmp_path: Path) -> None:
    first = host.make(60)
    worker = host.worker(first, tmp_path)
    run_id = await worker.ask(host.task(SOLVE, ASKS))
    fact = await worker.tried(run_id)
    assert fact.services >= 1
    await first.close()
    second = host.make(60)
    assert await second.sweep([]) == [], "what may be resumed is not swept"
    ended = await worker.another(second).verify(run_id, fact)
    assert ended.outcome == (0.5, "")
    assert ended.verified is not None
    assert ended.verified.mode == "shared"
    await second.close()
    assert host.left() == []


async def test_services_whose_time_is_over_are_lost_and_swept(host: Host, tmp_path: Path) -> None:
    first = host.make(0.5)
    worker = host.worker(first, tmp_path)
    run_id = await worker.ask(host.task(SOLVE, ASKS))
    fact = await worker.tried(run_id)
    await first.close()
    second = host.make(60)

    async def is_swept() -> bool:
        await second.sweep([])
        return host.left() == []

    await eventually(is_swept)
    ended = await worker.another(second).verify(run_id, fact)
    assert ended.failure is not None
    assert (ended.failure.failure, ended.failure.error) == ("infrastructure", "ServicesLostError")
    await second.close()


async def test_a_state_alone_is_graded_by_the_next_worker(host: Host, tmp_path: Path) -> None:
    first = host.make(0)
    worker = host.worker(first, tmp_path)
    test = "cat /app/answer.txt > /logs/verifier/reward.txt"
    run_id = await worker.ask(host.task("echo 0.25 > answer.txt", test))
    fact = await worker.tried(run_id)
    assert host.left() == []
    await first.close()
    second = host.make(0)
    ended = await worker.another(second).verify(run_id, fact)
    assert ended.outcome == (0.25, "")
    assert ended.verified is not None
    assert ended.verified.mode == "restored"
    await second.close()
    assert host.left() == []
