"""Containers across the deaths of their workers, and what is left of them: nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import dockerd
from support.docker_sandboxes import build, docker_provider, folders, sandbox_of, sh, states
from support.waiting import until
from trialog.sandbox.docker.provider import DockerProvider
from trialog.sandbox.errors import (
    ImageError,
    ProviderUnavailableError,
    SandboxBusyError,
    SandboxGoneError,
)
from trialog.sandbox.images import ImageSpec
from trialog.sandbox.provider import Enforcement

pytestmark = dockerd.MARKS
WORKER = Path(__file__).with_name("docker_worker.py")
DEADLINE_S = 30.0


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[DockerProvider]:
    async with docker_provider(tmp_path / "root") as made:
        yield made


class Worker:
    """A process that owns a sandbox; ``said`` is the output of its first command."""

    def __init__(self, process: asyncio.subprocess.Process, said: bytes) -> None:
        self.process = process
        self.said = said

    @classmethod
    async def start(cls, root: Path, orphan_ttl_s: float, image: str) -> Worker:
        words = [str(WORKER), str(root), "theirs", str(orphan_ttl_s), image]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdin=pipe, stdout=pipe
        )
        assert process.stdout is not None
        said = await asyncio.wait_for(process.stdout.readline(), DEADLINE_S)
        assert said
        return cls(process, said)

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


async def test_probe_starts_a_container_and_says_what_it_holds(
    provider: DockerProvider, tmp_path: Path
) -> None:
    found = await provider.probe()
    assert found.provider == "docker"
    hard = Enforcement.HARD
    assert (found.memory, found.pids, found.cpu, found.network) == (hard, hard, hard, hard)
    assert found.disk == Enforcement.POLLED
    assert states(tmp_path / "root") == []


@pytest.mark.parametrize("address", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1"])
async def test_without_a_daemon_the_mend_is_said(address: str, tmp_path: Path) -> None:
    with pytest.raises(ProviderUnavailableError, match="DOCKER_HOST"):
        await DockerProvider(tmp_path, address=address).probe()


async def test_destroy_leaves_nothing(provider: DockerProvider, tmp_path: Path) -> None:
    image = await build(provider, tmp_path / "c", f"FROM {dockerd.BASE}\nVOLUME /data\n")
    volumes = dockerd.docker("volume", "ls", "-q")
    networks = dockerd.docker("network", "ls", "-q")
    sandbox = await provider.start("one", ImageSpec(image.digest))
    await sh(sandbox, "1", "sleep 1000 & setsid sleep 1000 & mkdir -m 0 /d; echo x > /data/x")
    assert states(tmp_path / "root") == ["running"]
    await asyncio.gather(sandbox.destroy(), sandbox.destroy())
    assert states(tmp_path / "root") == []
    assert folders(tmp_path / "root") == []
    assert dockerd.docker("volume", "ls", "-q") == volumes
    assert dockerd.docker("network", "ls", "-q") == networks
    with pytest.raises(SandboxGoneError):
        await sandbox.exec("2", ["true"])
    with pytest.raises(SandboxGoneError):
        await provider.resume("one")


async def test_a_container_dies_with_its_worker(provider: DockerProvider, tmp_path: Path) -> None:
    image = await build(provider, tmp_path / "bare")
    worker = await Worker.start(tmp_path / "root", 0, image.digest)
    await worker.kill()
    await asyncio.to_thread(until, lambda: states(tmp_path / "root") == [])
    with pytest.raises(SandboxGoneError):
        await provider.resume("theirs")
    assert folders(tmp_path / "root") == []


async def test_a_new_worker_goes_on_and_reruns_nothing(
    provider: DockerProvider, tmp_path: Path
) -> None:
    image = await build(provider, tmp_path / "bare")
    worker = await Worker.start(tmp_path / "root", 60, image.digest)
    assert await provider.sweep([]) == []
    with pytest.raises(SandboxBusyError):
        await provider.resume("theirs")
    await worker.kill()
    assert await provider.sweep([]) == []
    sandbox = await provider.resume("theirs")
    assert sandbox.image == image
    assert (await sh(sandbox, "first", "echo rerun")).stdout == worker.said
    assert await sandbox.read("/kept.txt", 100) == worker.said
    hanging = asyncio.ensure_future(sandbox.exec("hang", ["echo", "rerun"]))
    await sh(sandbox, "2", "true")
    assert not hanging.done()
    await sandbox.kill_all()
    assert (await hanging).exit_code == -9
    assert await provider.start("theirs", ImageSpec(image.digest)) is sandbox
    await sandbox.destroy()


async def test_what_outlived_its_time_is_swept(provider: DockerProvider, tmp_path: Path) -> None:
    image = await build(provider, tmp_path / "bare")
    worker = await Worker.start(tmp_path / "root", 0.2, image.digest)
    await worker.kill()
    await asyncio.to_thread(until, lambda: states(tmp_path / "root") == [])
    assert await provider.sweep(["theirs"]) == []
    assert await provider.sweep([]) == ["theirs"]
    assert folders(tmp_path / "root") == []


async def test_a_container_that_was_never_begun_is_swept(
    provider: DockerProvider, tmp_path: Path
) -> None:
    await sandbox_of(provider, tmp_path)
    name = f"trialog-{provider.mark}-lost"
    label = f"org.trialog.root={provider.mark}"
    more = ["--label", label, "--label", "org.trialog.sandbox=lost", dockerd.BASE, "true"]
    dockerd.docker("create", "--name", name, *more)
    assert await provider.sweep([]) == ["lost"]
    assert states(tmp_path / "root") == ["running"]


async def test_a_worker_that_ends_in_order_leaves_what_may_outlive_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    first = DockerProvider(root, address=dockerd.address(), orphan_ttl_s=60)
    sandbox = await sandbox_of(first, tmp_path)
    await sh(sandbox, "1", "echo here > /here")
    await first.close()
    async with docker_provider(root) as second:
        again = await second.resume("one")
        assert await again.read("/here", 10) == b"here\n"


async def test_a_container_killed_from_outside_is_gone(
    provider: DockerProvider, tmp_path: Path
) -> None:
    sandbox = await sandbox_of(provider, tmp_path)
    hanging = asyncio.ensure_future(sh(sandbox, "1", "sleep 1000"))
    await sh(sandbox, "2", "true")
    dockerd.docker("kill", f"trialog-{provider.mark}-one")
    with pytest.raises(SandboxGoneError):
        await hanging
    await sandbox.destroy()
    fresh = await provider.start("one", ImageSpec(sandbox.image.digest))
    assert (await sh(fresh, "1", "echo again")).stdout == b"again\n"


async def test_an_image_that_is_not_built_here(provider: DockerProvider) -> None:
    with pytest.raises(ImageError, match="not built"):
        await provider.start("one", ImageSpec("0" * 64))


async def test_starts_that_are_given_up_leave_nothing(
    provider: DockerProvider, tmp_path: Path
) -> None:
    """Whatever a start was doing when it was cancelled."""
    image = await build(provider, tmp_path / "bare")
    await (await provider.start("first", ImageSpec(image.digest))).destroy()
    for number in range(12):
        starting = asyncio.ensure_future(provider.start(f"s{number}", ImageSpec(image.digest)))
        done, _ = await asyncio.wait([starting], timeout=0.02 * number)
        starting.cancel()
        await asyncio.wait([starting])
        if done:
            await starting.result().destroy()
    assert states(tmp_path / "root") == []
    assert folders(tmp_path / "root") == []


async def test_many_at_once(provider: DockerProvider, tmp_path: Path) -> None:
    image = await build(provider, tmp_path / "bare")

    async def trial(number: int) -> bytes:
        sandbox = await provider.start(f"t{number}", ImageSpec(image.digest))
        try:
            return (await sh(sandbox, "1", f"echo {number}")).stdout
        finally:
            await sandbox.destroy()

    said = await asyncio.gather(*(trial(number) for number in range(12)))
    assert said == [b"%d\n" % number for number in range(12)]
