"""Commands that attack their container: limits, and what must not be reached."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import dockerd
from support.docker_sandboxes import docker_provider, sandbox_of, sh
from trialog.sandbox.docker.provider import DockerProvider
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.provider import Limits

pytestmark = dockerd.MARKS
MIB = 1 << 20
LIMITS = Limits(memory_bytes=128 * MIB, pids=40, disk_bytes=16 * MIB, cpus=0.5)


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[DockerProvider]:
    async with docker_provider(tmp_path / "root") as made:
        yield made


@pytest.fixture
async def sandbox(provider: DockerProvider, tmp_path: Path) -> ImageSandbox:
    return await sandbox_of(provider, tmp_path, "hostile", limits=LIMITS)


@pytest.mark.parametrize(
    "script",
    [
        "mknod /disk b 254 0",
        "mount -t tmpfs none /mnt",
        "umount /dev/.trialog",
        "echo x > /dev/.trialog/init",
        "rm /dev/.trialog/init",
        "touch /dev/.trialog/handover",
        "ls /dev/.trialog/handover",
        "unshare -m true",
        "unshare -U true",
        "cat /proc/1/environ",
        "ls /proc/1/root/",
        "ls -l /proc/1/fd/",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo x > /sys/fs/cgroup/memory/memory.limit_in_bytes",
        "mkdir /sys/fs/cgroup/mine",
        "echo x > /sys/fs/cgroup/mine",
        "rmdir /sys/fs/cgroup/memory/mine || mkdir /sys/fs/cgroup/memory/mine",
        "echo 0 > /proc/irq/default_smp_affinity",
        "dmesg",
        "hostname other",
        "date -s 2000-01-01",
    ],
)
async def test_what_must_fail(sandbox: ImageSandbox, script: str) -> None:
    assert (await sh(sandbox, "1", script)).exit_code not in (0, 127)


async def test_pid_1_survives_its_children(sandbox: ImageSandbox) -> None:
    await sh(sandbox, "1", "for s in 1 2 3 9 11 13 15 17 19; do kill -$s 1; done; kill -9 -1")
    assert (await sh(sandbox, "2", "echo alive")).stdout == b"alive\n"
    assert await sandbox.processes() == 0


async def test_no_network_unless_asked(provider: DockerProvider, tmp_path: Path) -> None:
    alone = await sandbox_of(provider, tmp_path, "alone")
    public = await sandbox_of(provider, tmp_path, "public", network="public")
    script = "tail -n +3 /proc/net/dev | cut -d: -f1"
    assert (await sh(alone, "1", script)).stdout.split() == [b"lo"]
    assert sorted((await sh(public, "1", script)).stdout.split()) == [b"eth0", b"lo"]


async def test_sandboxes_with_network_do_not_reach_one_another(
    provider: DockerProvider, tmp_path: Path
) -> None:
    script = (
        "use IO::Socket::INET; $s = IO::Socket::INET->new(Listen => 1, LocalPort => 4000) or die;"
        "open(F, '>/up'); close(F); while ($c = $s->accept) { print $c qq(reached\\n); close($c) }"
    )
    served = await sandbox_of(provider, tmp_path, "served", network="public")
    other = await sandbox_of(provider, tmp_path, "other", network="public")
    await sh(
        served,
        "1",
        f'perl -e "{script.replace("$", chr(92) + "$")}" & until [ -e /up ]; do :; done',
    )
    address = (await sh(served, "2", "hostname -i")).stdout.decode().strip()
    said = f'IO::Socket::INET->new("{address}:4000")->getline'
    connect = f"timeout 3 perl -MIO::Socket::INET -e 'print {said}'"
    assert (await sh(served, "3", connect)).stdout == b"reached\n"
    assert (await sh(other, "3", connect)).exit_code != 0


async def test_a_memory_hog_is_killed_alone(sandbox: ImageSandbox) -> None:
    before = sandbox.image
    hog = await sh(sandbox, "1", "perl -e '$x = q(x) x (1 << 28); print length $x'")
    assert hog.exit_code in (-9, 137) and hog.stdout == b""
    assert (await sh(sandbox, "2", "echo alive")).stdout == b"alive\n"
    assert sandbox.image is before


async def test_a_fork_bomb_is_held_and_killed(sandbox: ImageSandbox) -> None:
    bombed = await sh(sandbox, "1", "f() { f | f & }; f; sleep 100", timeout_s=2)
    assert bombed.timed_out or bombed.exit_code != 0
    assert await sandbox.processes() <= LIMITS.pids
    await sandbox.kill_all()
    assert await sandbox.processes() == 0
    assert (await sh(sandbox, "2", "echo alive")).stdout == b"alive\n"


async def test_a_full_disk_ends_the_command(sandbox: ImageSandbox) -> None:
    script = "i=0; while :; do head -c 1000000 /dev/zero > /f$i || exit; i=$((i+1)); done"
    ended = await sh(sandbox, "1", script, timeout_s=60)
    assert (ended.limit, ended.timed_out) == ("disk", False)
    one = await sh(sandbox, "2", "rm /f*; head -c 20000000 /dev/zero > /one")
    assert one.exit_code != 0
    assert len((await sh(sandbox, "3", "head -c 100 /one")).stdout) == 100


async def test_output_is_cut_and_costs_nothing(sandbox: ImageSandbox) -> None:
    flood = await sh(sandbox, "1", "head -c 1000000000 /dev/zero", timeout_s=120)
    assert flood.truncated and len(flood.stdout) == LIMITS.output_bytes


async def test_a_timeout_kills_the_whole_tree(sandbox: ImageSandbox) -> None:
    script = "(sleep 1000 & sleep 1000) & sleep 1000"
    ended = await sh(sandbox, "1", script, timeout_s=0.3)
    assert ended.timed_out and ended.exit_code == -9
    async with asyncio.timeout(10):  # all are killed at once, and die as the kernel comes to them
        while await sandbox.processes():
            pass


async def test_background_services_live_on_until_killed(sandbox: ImageSandbox) -> None:
    assert (await sh(sandbox, "1", "sleep 1000 & exec sleep 0")).exit_code == 0
    assert await sandbox.processes() == 1
    await sandbox.kill_all()
    assert await sandbox.processes() == 0


async def test_nothing_of_the_host_is_inside(sandbox: ImageSandbox, tmp_path: Path) -> None:
    os.environ["TRIALOG_TEST_SECRET"] = "hidden"
    try:
        seen = await sh(sandbox, "1", f"env; cat /proc/1/cmdline; ls {tmp_path} {Path.cwd()}")
    finally:
        del os.environ["TRIALOG_TEST_SECRET"]
    assert b"hidden" not in seen.stdout
    assert seen.stderr.count(b"No such file") == 2
