"""Sandboxes from images across the deaths of their workers, and what is left: nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.waiting import until
from trialog.sandbox.bubblewrap import cgroups, tools
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.errors import (
    ProviderUnavailableError,
    SandboxBusyError,
    SandboxGoneError,
)
from trialog.sandbox.images import ImageSpec, Recipe
from trialog.sandbox.provider import Limits

WORKER = Path(__file__).with_name("image_worker.py")
RECIPE = Recipe(WORKER.parent, None, docker_image="base", images={"base": "host"})
DEADLINE_S = 20.0


async def start(root: Path, sandbox_id: str, orphan_s: float, phase: str = "started") -> Worker:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(WORKER),
        str(root),
        sandbox_id,
        str(orphan_s),
        phase,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    said = b""
    if phase != "building":
        said = await asyncio.wait_for(process.stdout.readline(), DEADLINE_S)
        assert said
    return Worker(process, said)


class Worker:
    """A process that owns a sandbox; ``said`` is the output of its first command."""

    def __init__(self, process: asyncio.subprocess.Process, said: bytes) -> None:
        self.process = process
        self.said = said

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "p"


@pytest.fixture
async def provider(root: Path) -> AsyncIterator[BubblewrapProvider]:
    made = BubblewrapProvider(root, orphan_s=60)
    yield made
    await made.close()


def nonces(root: Path) -> list[str]:
    records = (root / "run").glob("*/record")
    return [json.loads(record.read_text())["nonce"] for record in records]


def left_of(nonce: str) -> list[str]:
    """Processes and cgroups of the host that belong to a sandbox."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and nonce.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    parents = cgroups.find()
    places = (parents.memory, parents.pids, parents.unified, parents.cpu)
    groups = [place / f"trialog-{nonce}" for place in places if place]
    return found + [str(group) for group in groups if group.exists()]


def clean(root: Path) -> bool:
    mounts = Path("/proc/self/mounts").read_text()
    return not list((root / "run").iterdir()) and str(root) not in mounts


async def test_destroy_leaves_nothing(provider: BubblewrapProvider, root: Path) -> None:
    image = await provider.build(RECIPE)
    sandbox = await provider.start("one", ImageSpec(image.digest))
    await sandbox.exec("1", ["sh", "-c", "sleep 1000 & setsid sleep 1000 & mkdir -m 0 /d; exit 0"])
    (nonce,) = nonces(root)
    assert left_of(nonce)
    await sandbox.destroy()
    assert left_of(nonce) == []
    assert clean(root)


async def test_a_new_worker_resumes_and_reruns_nothing(
    provider: BubblewrapProvider, root: Path
) -> None:
    worker = await start(root, "theirs", 60)
    with pytest.raises(SandboxBusyError):
        await provider.resume("theirs")
    await worker.kill()
    assert await provider.sweep([]) == []  # its time is not over
    sandbox = await provider.resume("theirs")
    again = await sandbox.exec("first", ["sh", "-c", "echo rerun"])
    assert again.stdout.strip() == worker.said.strip()
    assert (await sandbox.exec("env", ["sh", "-c", "echo $KEPT"])).stdout == b"env\n"
    beat = 'old=$(cat /beat); until [ "$(cat /beat)" != "$old" ]; do :; done'
    assert (await sandbox.exec("beat", ["sh", "-c", beat], timeout_s=20)).exit_code == 0
    (nonce,) = nonces(root)
    await sandbox.destroy()
    assert left_of(nonce) == []
    assert clean(root)


async def test_a_worker_that_ends_leaves_it_to_the_next(root: Path) -> None:
    first = BubblewrapProvider(root, orphan_s=60)
    image = await first.build(RECIPE)
    sandbox = await first.start("same", ImageSpec(image.digest))
    await sandbox.write("/kept", b"kept")
    await first.close()
    with pytest.raises(SandboxGoneError):
        await sandbox.read("/kept", 10)
    second = BubblewrapProvider(root, orphan_s=60)
    resumed = await second.start("same", ImageSpec(image.digest))
    assert await resumed.read("/kept", 10) == b"kept"
    await resumed.destroy()
    await second.close()
    assert clean(root)


@pytest.mark.parametrize("orphan_s", [0, 0.3])
async def test_an_orphan_ends_after_its_time_and_is_swept(
    provider: BubblewrapProvider, root: Path, orphan_s: float
) -> None:
    worker = await start(root, "theirs", orphan_s)
    (nonce,) = nonces(root)
    await worker.kill()

    def ended() -> bool:
        return not any(name.isdigit() for name in left_of(nonce))

    await asyncio.to_thread(until, ended)
    assert await provider.sweep(["theirs"]) == []
    assert await provider.sweep([]) == ["theirs"]
    assert left_of(nonce) == []
    assert clean(root)
    with pytest.raises(SandboxGoneError):
        await provider.resume("theirs")


async def test_an_orphan_that_was_not_saved_ends_at_once(
    provider: BubblewrapProvider, root: Path
) -> None:
    saved = await start(root, "saved", 60, "saved")
    await saved.kill()
    (kept,) = nonces(root)
    unsaved = await start(root, "unsaved", 60, "unsaved")
    (nonce,) = {*nonces(root)} - {kept}
    await unsaved.kill()
    await asyncio.to_thread(until, lambda: not any(n.isdigit() for n in left_of(nonce)))
    sandbox = await provider.resume("saved")
    again = await sandbox.exec("first", ["sh", "-c", "echo rerun"])
    assert again.stdout.strip() == saved.said.strip()
    await sandbox.destroy()
    assert await provider.sweep([]) == ["unsaved"]


async def test_a_save_that_was_cut_off_lets_all_go_on(
    provider: BubblewrapProvider, root: Path
) -> None:
    worker = await start(root, "theirs", 60, "saving")
    await worker.kill()
    sandbox = await provider.resume("theirs")
    beat = 'old=$(cat /beat); until [ "$(cat /beat)" != "$old" ]; do :; done'
    assert (await sandbox.exec("beat", ["sh", "-c", beat], timeout_s=20)).exit_code == 0
    await sandbox.destroy()


async def test_a_build_that_was_cut_off_leaves_no_half_image(
    provider: BubblewrapProvider, root: Path
) -> None:
    context = root.parent / "context"
    context.mkdir()
    dockerfile = context / "Dockerfile"
    dockerfile.write_text("FROM base\nRUN touch /half; sleep 1000\n")
    worker = await start(root, "-", 60, "building")
    await asyncio.to_thread(until, lambda: list(root.glob("run/*/fs/upper/half")))
    (nonce,) = nonces(root)
    await worker.kill()
    await asyncio.to_thread(until, lambda: not any(n.isdigit() for n in left_of(nonce)))
    assert len(await provider.sweep([])) == 1
    assert left_of(nonce) == []
    assert clean(root)
    assert not list(root.glob("images-*/images/*.json"))
    dockerfile.write_text("FROM base\nRUN touch /whole\n")
    image = await provider.build(Recipe(context, images={"base": "host"}))
    sandbox = await provider.start("one", ImageSpec(image.digest))
    assert (await sandbox.exec("1", ["ls", "/whole"])).exit_code == 0
    await sandbox.destroy()


async def test_a_network_is_refused_with_the_mend(provider: BubblewrapProvider) -> None:
    image = await provider.build(RECIPE)
    with pytest.raises(ProviderUnavailableError, match="docker"):
        await provider.start("one", ImageSpec(image.digest, network="public"))


async def test_kinds_are_not_mixed_up(provider: BubblewrapProvider) -> None:
    image = await provider.build(RECIPE)
    sandbox = await provider.start("one", ImageSpec(image.digest))
    with pytest.raises(SandboxBusyError):
        await provider.attach("one")
    await sandbox.destroy()


async def test_a_host_without_ranges_says_so_and_starts_none(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worlds are still to be had there: the reference run needs no image."""
    monkeypatch.setattr(tools, "RANGE_BASE", 4_294_967_294)  # ids that cannot be mapped
    monkeypatch.setattr(tools, "range_base", lambda: tools.RANGE_BASE)
    provider = BubblewrapProvider(root, orphan_s=0)
    try:
        notes = (await provider.probe()).notes
        assert any(note.startswith("tasks: no sandbox from an image") for note in notes)
        with pytest.raises(ProviderUnavailableError, match="starts no sandboxes from images"):
            await provider.build(RECIPE)
        with pytest.raises(ProviderUnavailableError, match="starts no sandboxes from images"):
            await provider.start("one", ImageSpec("0" * 64))
        assert clean(root)
    finally:
        await provider.close()


async def test_a_hog_does_not_cost_the_next_command(root: Path) -> None:
    """Without cgroups a watchdog kills it; what dies is not held against what comes after."""
    provider = BubblewrapProvider(root, orphan_s=0, use_cgroups=False)
    try:
        image = await provider.build(RECIPE)
        limits = Limits(memory_bytes=128 << 20)
        sandbox = await provider.start("one", ImageSpec(image.digest, limits))
        hog = "head -c 400000000 /dev/zero | tail -c 400000000 | { sleep 20; wc -c; }"
        for at in range(5):
            killed = await sandbox.exec(f"hog{at}", ["sh", "-c", hog], timeout_s=60)
            assert (killed.exit_code, killed.limit) == (-9, "memory")
            after = await sandbox.exec(f"after{at}", ["sleep", "0.3"])
            assert (after.exit_code, after.limit) == (0, None)
    finally:
        await provider.close()
