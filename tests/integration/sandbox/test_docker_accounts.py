"""What containers could take unseen: between commands, without names, without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import dockerd
from support.docker_sandboxes import docker_provider, sandbox_of, sh, states
from support.waiting import until
from trialog.sandbox.docker import sandbox as docker_sandbox
from trialog.sandbox.docker.provider import DockerProvider
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.provider import Limits

pytestmark = dockerd.MARKS
MIB = 1 << 20
LIMITS = Limits(memory_bytes=128 * MIB, pids=40, disk_bytes=16 * MIB)


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[DockerProvider]:
    async with docker_provider(tmp_path / "root") as made:
        yield made


@pytest.fixture
async def sandbox(provider: DockerProvider, tmp_path: Path) -> ImageSandbox:
    return await sandbox_of(provider, tmp_path, "hostile", limits=LIMITS)


async def test_a_disk_filler_between_commands_is_ended(sandbox: ImageSandbox) -> None:
    fill = "i=0; while :; do head -c 1000000 /dev/zero > /f$i || exit; i=$((i+1)); done"
    await sh(sandbox, "1", f"({fill}; sleep 1000) > /dev/null 2>&1 &")
    async with asyncio.timeout(60):
        while await sandbox.processes():
            pass


async def test_a_disk_filler_whose_files_have_no_name_is_ended(sandbox: ImageSandbox) -> None:
    files = "exec 3> /a 4> /b 5> /c; rm /a /b /c"
    fill = "for i in 3 4 5; do head -c 8000000 /dev/zero >&$i; done; sleep 1000"
    ended = await sh(sandbox, "1", f"{files}; {fill}", timeout_s=60)
    assert (ended.limit, ended.timed_out) == ("disk", False)


async def test_no_command_looks_into_others_as_pid_1_does(sandbox: ImageSandbox) -> None:
    seen = await sh(sandbox, "1", "grep -E 'Cap(Eff|Prm|Bnd)' /proc/self/status")
    masks = [int(line.split()[1], 16) for line in seen.stdout.splitlines()]
    assert len(masks) == 3
    assert not any(mask & 1 << 19 for mask in masks)


async def test_an_orphan_that_was_not_saved_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_sandbox, "UNSAVED_ORPHAN_S", 0.3)
    root = tmp_path / "root"
    first = DockerProvider(root, address=dockerd.address(), orphan_ttl_s=60)
    saved = await sandbox_of(first, tmp_path, "saved", resumable=False)
    await saved.save(tmp_path / "state", MIB)
    await sandbox_of(first, tmp_path, "unsaved", resumable=False)
    await first.close()
    await asyncio.to_thread(until, lambda: len(states(root)) == 1)
    async with docker_provider(root) as second:
        resumed = await second.resume("saved")
        assert await resumed.processes() == 0
        await resumed.destroy()
        assert await second.sweep([]) == ["unsaved"]
