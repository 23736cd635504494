"""Sandboxes across the deaths of their workers, and what is left of them: nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from support.waiting import until
from trialog.sandbox.bubblewrap import cgroups
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.errors import SandboxBusyError, SandboxGoneError
from trialog.sandbox.provider import SandboxSpec
from trialog.sandbox.worlds import reference

WORKER = Path(__file__).with_name("worker.py")
DEADLINE_S = 15.0


class Worker:
    """A process that owns a sandbox; ``said`` is the output of its first command."""

    def __init__(self, process: asyncio.subprocess.Process, said: bytes) -> None:
        self.process = process
        self.said = said

    @classmethod
    async def start(cls, root: Path, sandbox_id: str, orphan_ttl_s: float) -> Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(WORKER),
            str(root),
            sandbox_id,
            str(orphan_ttl_s),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        said = await asyncio.wait_for(process.stdout.readline(), DEADLINE_S)
        assert said
        return cls(process, said)

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


def nonce_of(root: Path, sandbox_id: str) -> str:
    return json.loads((root / "run" / sandbox_id / "record").read_text())["nonce"]


def processes_with(nonce: str) -> list[int]:
    """Processes of the host that carry a sandbox's nonce: bubblewrap and PID 1."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and nonce.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def groups_with(nonce: str) -> list[Path]:
    parents = cgroups.find()
    places = [p for p in (parents.memory, parents.pids, parents.unified) if p]
    return [p / f"trialog-{nonce}" for p in places if (p / f"trialog-{nonce}").exists()]


def mounts_below(root: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if str(root) in line]


async def test_destroy_leaves_nothing(
    provider: BubblewrapProvider, spec: SandboxSpec, tmp_path: Path
) -> None:
    sandbox = await provider.create("one", spec)
    await sandbox.exec("1", ["sh", "-c", "sleep 1000 & setsid sleep 1000 & mkdir -m 0 d; exit 0"])
    nonce = nonce_of(tmp_path, "one")
    assert processes_with(nonce)
    await sandbox.destroy()
    assert processes_with(nonce) == []
    assert groups_with(nonce) == []
    assert list((tmp_path / "run").iterdir()) == []
    assert mounts_below(tmp_path) == []


async def test_a_sandbox_dies_with_its_worker(tmp_path: Path, provider: BubblewrapProvider) -> None:
    worker = await Worker.start(tmp_path, "theirs", 0)
    nonce = nonce_of(tmp_path, "theirs")
    await worker.kill()
    await asyncio.to_thread(until, lambda: processes_with(nonce) == [])
    with pytest.raises(SandboxGoneError):
        await provider.attach("theirs")
    assert not (tmp_path / "run" / "theirs").exists()


async def test_a_new_worker_attaches_and_reruns_nothing(
    tmp_path: Path, provider: BubblewrapProvider
) -> None:
    worker = await Worker.start(tmp_path, "theirs", 60)
    await worker.kill()
    sandbox = await provider.attach("theirs")
    again = await sandbox.exec("first", ["sh", "-c", "echo rerun"])
    assert again.stdout == worker.said
    assert await sandbox.read("kept.txt", 100) == worker.said
    hanging = asyncio.ensure_future(sandbox.exec("hang", ["echo", "rerun"]))
    await sandbox.exec("2", ["true"])
    assert not hanging.done()
    assert (await sandbox.snapshot()).files_written() == ["kept.txt"]
    assert (await hanging).exit_code == -9
    nonce = nonce_of(tmp_path, "theirs")
    await sandbox.destroy()
    assert processes_with(nonce) == []
    assert list((tmp_path / "run").iterdir()) == []


async def test_an_orphan_ends_after_its_time(tmp_path: Path, provider: BubblewrapProvider) -> None:
    worker = await Worker.start(tmp_path, "theirs", 0.5)
    nonce = nonce_of(tmp_path, "theirs")
    assert processes_with(nonce)
    await worker.kill()
    await asyncio.to_thread(until, lambda: processes_with(nonce) == [])


async def test_a_living_workers_sandbox_is_left_alone(
    tmp_path: Path, provider: BubblewrapProvider, spec: SandboxSpec
) -> None:
    worker = await Worker.start(tmp_path, "theirs", 60)
    try:
        with pytest.raises(SandboxBusyError):
            await provider.attach("theirs")
        with pytest.raises(SandboxBusyError):
            await provider.create("theirs", spec)
        assert await provider.sweep([]) == []
    finally:
        await worker.kill()


async def test_sweep_removes_what_dead_workers_left(
    tmp_path: Path, provider: BubblewrapProvider
) -> None:
    workers = [await Worker.start(tmp_path, name, 60) for name in ("a", "b")]
    nonces = [nonce_of(tmp_path, name) for name in ("a", "b")]
    for worker in workers:
        await worker.kill()
    assert await provider.sweep(["b"]) == ["a"]
    assert processes_with(nonces[0]) == groups_with(nonces[0]) == []
    assert processes_with(nonces[1])
    assert await provider.sweep([]) == ["b"]
    assert processes_with(nonces[1]) == groups_with(nonces[1]) == []
    assert list((tmp_path / "run").iterdir()) == []


async def test_a_dead_id_is_made_anew(
    tmp_path: Path, provider: BubblewrapProvider, spec: SandboxSpec
) -> None:
    await (await Worker.start(tmp_path, "same", 0)).kill()
    sandbox = await provider.create("same", spec)
    assert (await sandbox.snapshot()).entries == ()


async def test_two_processes_prepare_one_world_at_once(tmp_path: Path) -> None:
    provider = BubblewrapProvider(tmp_path)
    workers = await asyncio.gather(*(Worker.start(tmp_path, f"w{i}", 0) for i in range(3)))
    try:
        digest = reference.build("w0").digest()
        assert [p.name for p in (tmp_path / "worlds").iterdir()] == [digest]
    finally:
        for worker in workers:
            await worker.kill()
        assert len(await provider.sweep([])) == len(workers)
        await provider.close()


async def test_limits_hold_without_cgroups(tmp_path: Path) -> None:
    provider = BubblewrapProvider(tmp_path, use_cgroups=False)
    try:
        capabilities = await provider.probe()
        assert capabilities.memory == "polled"
        world = reference.build("w0")
        await provider.prepare(world.digest(), world.tar_bytes())
        sandbox = await provider.create("one", SandboxSpec(world.digest()))
        hog = "head -c 1600000000 /dev/zero | tail -c 1500000000 | { sleep 5; wc -c; }"
        result = await sandbox.exec("hog", ["sh", "-c", hog], timeout_s=60)
        assert (result.exit_code, result.limit) == (-9, "memory")
        bomb = "i=0; while [ $i -lt 400 ]; do sleep 100 & i=$((i+1)); done; wait"
        result = await sandbox.exec("bomb", ["sh", "-c", bomb], timeout_s=60)
        assert result.exit_code != 0
    finally:
        await provider.close()
