"""Final states of containers: saved from the upper layer and started from again."""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import dockerd
from support.docker_sandboxes import build, docker_provider, sh
from trialog.sandbox.docker.provider import DockerProvider
from trialog.sandbox.errors import ImageError, SnapshotRefusedError
from trialog.sandbox.images import ImageSandbox, ImageSpec
from trialog.sandbox.provider import Limits

pytestmark = dockerd.MARKS
TEXT = f"""FROM {dockerd.BASE}
RUN mkdir -p /app/old /app/keep && echo 1 > /app/old/a && echo 2 > /app/keep/b && echo 3 > /gone
"""
CHANGES = """
rm -r /app/old /gone && mkdir /app/old && echo new > /app/old/n
echo changed > /app/keep/b && chmod 600 /app/keep/b && chown 7:8 /app/keep/b
ln -s /etc/passwd /link && ln /app/keep/b /hard && chmod 1777 /app && mkfifo /pipe
mkdir /mine && chown 9:9 /mine && chmod 711 /mine
"""
LOOK = """
cd / && ls -d gone app/old/* app/keep/* link hard pipe mine .trialog-write* 2>&1
stat -c '%n %a %u:%g %F' app app/old app/keep/b mine pipe link
cat app/keep/b app/old/n hard; readlink link; [ hard -ef app/keep/b ] && echo one file
"""


@pytest.fixture(params=["layers read", "daemon asked"])
async def provider(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DockerProvider]:
    reads = request.param == "layers read"
    async with docker_provider(tmp_path / "root", reads_layers=reads) as made:
        yield made


async def look(sandbox: ImageSandbox) -> bytes:
    return (await sh(sandbox, "look", LOOK)).stdout


async def test_a_state_starts_as_it_was_left(provider: DockerProvider, tmp_path: Path) -> None:
    image = await build(provider, tmp_path / "c", TEXT)
    first = await provider.start("first", ImageSpec(image.digest))
    await sh(first, "1", CHANGES)
    state = tmp_path / "state"
    snapshot = await first.save(state, 1 << 30)
    assert snapshot.read("app/keep/b") == b"changed\n"
    assert "gone" in {entry.path for entry in snapshot.entries if entry.kind == "deleted"}
    with tarfile.open(state) as archive:
        assert not [name for name in archive.getnames() if name.startswith(".trialog")]
    second = await provider.start("second", ImageSpec(image.digest, states=(state,)))
    assert await look(second) == await look(first)
    assert b"one file" in await look(second)
    again = await second.save(tmp_path / "again", 1 << 30)
    assert again.digest() == snapshot.digest()


async def test_where_nothing_was_written_there_is_nothing(
    provider: DockerProvider, tmp_path: Path
) -> None:
    image = await build(provider, tmp_path / "c", TEXT)
    sandbox = await provider.start("one", ImageSpec(image.digest))
    assert (await sandbox.save(tmp_path / "state", 1000)).entries == ()
    await sh(sandbox, "1", "echo x > /etc/hosts")
    assert (await sandbox.save(tmp_path / "state", 1000)).files_written() == ["etc/hosts"]
    again = await provider.start("two", ImageSpec(image.digest, states=(tmp_path / "state",)))
    assert await again.read("/etc/hosts", 100) == b"x\n"


async def test_what_an_image_calls_a_volume_is_saved(
    provider: DockerProvider, tmp_path: Path
) -> None:
    text = (
        TEXT
        + "RUN useradd -u 77 keeper && mkdir /data && echo image > /data/a && chown 77 /data/a\n"
        'ENV SAID="a \\"b\\" $c \\\\d" EMPTY=\nWORKDIR /app\nUSER keeper\nVOLUME ["/data"]\n'
    )
    image = await build(provider, tmp_path / "c", text)
    assert (image.workdir, image.user) == ("/app", "keeper")
    assert (image.env["SAID"], image.env["EMPTY"]) == ('a "b"  \\d', "")
    sandbox = await provider.start("one", ImageSpec(image.digest))
    said = await sh(sandbox, "1", "stat -c %u /data/a && echo more >> /data/a && cat /data/a")
    assert said.stdout == b"77\nimage\nmore\n"
    await sandbox.save(tmp_path / "state", 1 << 30)
    again = await provider.start("two", ImageSpec(image.digest, states=(tmp_path / "state",)))
    assert await again.read("/data/a", 100) == b"image\nmore\n"


async def test_states_lie_over_one_another(provider: DockerProvider, tmp_path: Path) -> None:
    image = await build(provider, tmp_path / "c", TEXT)
    left: list[Path] = []
    for script in (
        "rm -r /app/old && mkdir /d && echo 1 > /d/f && echo 1 > /x && rm /app/keep/b",
        "rm /app/old/a && echo 2 > /app/old/z && echo 2 > /d && echo 2 > /app/keep/b",
    ):
        left.append(tmp_path / f"state-{len(left)}")
        sandbox = await provider.start(f"s{len(left)}", ImageSpec(image.digest))
        await sh(sandbox, "1", script)
        await sandbox.save(left[-1], 1 << 30)
    over = await provider.start("over", ImageSpec(image.digest, states=tuple(left)))
    said = (await sh(over, "1", "ls /app/old; cat /d /x /app/keep/b /app/old/z")).stdout
    assert said == b"z\n2\n1\n2\n2\n"


async def test_processes_stand_still_and_go_on(provider: DockerProvider, tmp_path: Path) -> None:
    image = await build(provider, tmp_path / "c", TEXT)
    sandbox = await provider.start("one", ImageSpec(image.digest))
    count = "(while :; do i=$((i+1)); echo $i > /n.new; mv /n.new /n; done) &"
    await sh(sandbox, "1", f"{count} until [ -e /n ]; do :; done")
    snapshot = await sandbox.save(tmp_path / "state", 1 << 30)
    saved = int(snapshot.read("n")) if "n" in snapshot.files_written() else 0
    async with asyncio.timeout(30):
        while int(await sandbox.read("/n", 100)) <= saved:
            pass


async def test_a_state_of_one_way_starts_in_the_other(tmp_path: Path) -> None:
    image, state, seen = "", tmp_path / "state", list[bytes]()
    for reads in (True, False, True):
        async with docker_provider(tmp_path / "root", reads_layers=reads) as provider:
            image = image or (await build(provider, tmp_path / "c", TEXT)).digest
            states = (state,) if seen else ()
            sandbox = await provider.start("one", ImageSpec(image, states=states))
            if not seen:
                await sh(sandbox, "1", CHANGES)
            seen.append(await look(sandbox))
            await sandbox.save(state, 1 << 30)
    assert seen[0] == seen[1] == seen[2]


async def test_what_is_too_much_ends_the_command(provider: DockerProvider, tmp_path: Path) -> None:
    image = await build(provider, tmp_path / "c", TEXT)
    limits = Limits(disk_bytes=16 << 20)
    sandbox = await provider.start("one", ImageSpec(image.digest, limits=limits))
    script = "i=0; while :; do head -c 1000000 /dev/zero > /f$i || exit; i=$((i+1)); done"
    assert (await sh(sandbox, "1", script, timeout_s=60)).limit == "disk"
    assert (await sh(sandbox, "2", "rm /f*; echo alive")).stdout == b"alive\n"
    # A writer that its command left behind is looked at as well.
    assert (await sh(sandbox, "3", f"({script}) > /dev/null 2>&1 &")).exit_code == 0
    async with asyncio.timeout(60):
        while await sandbox.processes():
            await sh(sandbox, "looked", "true")


async def test_a_broken_state_starts_nothing(provider: DockerProvider, tmp_path: Path) -> None:
    image = await build(provider, tmp_path / "c", TEXT)
    (tmp_path / "state").write_bytes(b"no archive at all")
    with pytest.raises(ImageError, match="state"):
        await provider.start("one", ImageSpec(image.digest, states=(tmp_path / "state",)))


async def test_a_state_above_its_limit_is_refused(provider: DockerProvider, tmp_path: Path) -> None:
    image = await build(provider, tmp_path / "c", TEXT)
    sandbox = await provider.start("one", ImageSpec(image.digest))
    await sh(sandbox, "1", "head -c 2000000 /dev/zero > /big")
    with pytest.raises(SnapshotRefusedError, match="1000000 bytes"):
        await sandbox.save(tmp_path / "state", 1_000_000)
    assert not (tmp_path / "state").exists()
    await sandbox.save(tmp_path / "state", 3_000_000)
