"""The files that the daemon mounts over an image's, in states that go from provider to provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import dockerd, harbor_root
from support.docker_sandboxes import docker_provider, sandbox_of, sh
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.docker import mounted
from trialog.sandbox.docker.provider import DockerProvider
from trialog.sandbox.errors import ImageError
from trialog.sandbox.images import ImageSandbox, ImageSpec, Recipe
from trialog.sandbox.provider import Limits

pytestmark = [
    *dockerd.MARKS,
    pytest.mark.skipif(bool(harbor_root.missing()), reason=harbor_root.missing()),
]
MIB = 1 << 20
LOOK = "cat /etc/hosts /etc/hostname /etc/resolv.conf; stat -c '%a %u %g' /etc/host* /etc/resolv*"


@pytest.fixture(params=["layers read", "daemon asked"])
async def docker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DockerProvider]:
    reads = request.param == "layers read"
    async with docker_provider(tmp_path / "docker", reads_layers=reads) as made:
        yield made


@pytest.fixture
async def bubblewrap(tmp_path: Path) -> AsyncIterator[BubblewrapProvider]:
    made = BubblewrapProvider(tmp_path / "bubblewrap", orphan_s=0)
    yield made
    await made.close()


async def rooted(
    provider: BubblewrapProvider, tmp_path: Path, name: str, *states: Path
) -> ImageSandbox:
    context = tmp_path / "context"
    context.mkdir(exist_ok=True)
    recipe = Recipe(context, None, docker_image="base", images={"base": "host"})
    image = await provider.build(recipe)
    return await provider.start(name, ImageSpec(image.digest, states=states))


async def test_a_state_goes_from_docker_to_bubblewrap_and_back(
    docker: DockerProvider, bubblewrap: BubblewrapProvider, tmp_path: Path
) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    first = await sandbox_of(docker, tmp_path, "first")
    await sh(first, "1", "echo 10.0.0.1 mine >> /etc/hosts; echo x > /etc/resolv.conf")
    await sh(first, "2", "chown 7:8 /etc/resolv.conf; chmod 640 /etc/resolv.conf")
    saved = await first.save(there, MIB)
    second = await rooted(bubblewrap, tmp_path, "second", there)
    left = (await sh(first, "look", LOOK)).stdout
    assert b"10.0.0.1 mine\nsandbox\nx\n" in left
    assert (
        await sh(second, "look", "cat /etc/hosts /etc/hostname /etc/resolv.conf")
    ).stdout in left
    again = await second.save(back, MIB)
    names = set(mounted.NAMES)
    assert [e for e in again.entries if e.path in names] == [
        e for e in saved.entries if e.path in names
    ]
    third = await sandbox_of(docker, tmp_path, "third", states=(back,))
    assert (await sh(third, "look", LOOK)).stdout == left


async def test_what_bubblewrap_let_go_is_empty(
    docker: DockerProvider, bubblewrap: BubblewrapProvider, tmp_path: Path
) -> None:
    first = await rooted(bubblewrap, tmp_path, "first")
    await sh(first, "1", "ln /etc/hosts /h; echo more >> /h; rm /etc/hostname")
    await first.save(tmp_path / "state", MIB)
    second = await sandbox_of(docker, tmp_path, "second", states=(tmp_path / "state",))
    assert (await sh(second, "1", "cat /etc/hostname; cmp /h /etc/hosts; tail -n1 /h")).stdout == (
        b"more\n"
    )
    again = await second.save(tmp_path / "again", MIB)
    kinds = {entry.path: entry.kind for entry in again.entries}
    assert (kinds["etc/hostname"], kinds["etc/hosts"]) == ("deleted", "file")
    await sh(second, "2", "echo new > /etc/hostname")
    assert (await second.save(tmp_path / "new", MIB)).read("etc/hostname") == b"new\n"


async def test_a_folder_made_anew_keeps_only_what_is_mounted(
    docker: DockerProvider, bubblewrap: BubblewrapProvider, tmp_path: Path
) -> None:
    first = await rooted(bubblewrap, tmp_path, "first")
    await sh(first, "1", "rm -r /etc; mkdir /etc; echo x > /etc/only; echo h > /etc/hosts")
    await first.save(tmp_path / "state", MIB)
    second = await sandbox_of(docker, tmp_path, "second", states=(tmp_path / "state",))
    seen = (await sh(second, "1", "ls -A /etc; cat /etc/host* /etc/resolv.conf")).stdout.split()
    assert [name for name in seen if name != b"mtab"] == [
        b"hostname",
        b"hosts",
        b"only",
        b"resolv.conf",
        b"h",
    ]
    again = await second.save(tmp_path / "again", MIB)
    assert again.read("etc/hosts") == b"h\n"
    assert "etc/hostname" not in again.files_written()


async def test_a_link_in_their_place_is_refused(
    docker: DockerProvider, bubblewrap: BubblewrapProvider, tmp_path: Path
) -> None:
    first = await rooted(bubblewrap, tmp_path, "first")
    await sh(first, "1", "ln -sf /tmp/elsewhere /etc/resolv.conf")
    await first.save(tmp_path / "state", MIB)
    with pytest.raises(ImageError, match=r"etc/resolv\.conf"):
        await sandbox_of(docker, tmp_path, "second", states=(tmp_path / "state",))


async def test_a_later_worker_knows_what_was_given(tmp_path: Path) -> None:
    root, state = tmp_path / "root", tmp_path / "state"
    first = DockerProvider(root, address=dockerd.address(), orphan_ttl_s=60)
    sandbox = await sandbox_of(first, tmp_path)
    await sh(sandbox, "1", "echo mine > /etc/hostname")
    await first.close()
    async with docker_provider(root) as later:
        resumed = await later.resume("one")
        saved = await resumed.save(state, MIB)
        names = [name for name in saved.files_written() if name in mounted.NAMES]
        assert names == ["etc/hostname"]


async def test_where_there_is_a_network_they_are_the_daemons(
    docker: DockerProvider, tmp_path: Path
) -> None:
    public = await sandbox_of(docker, tmp_path, "public", network="public")
    said = (await sh(public, "1", "hostname -i; cat /etc/hosts")).stdout.split(b"\n", 1)
    assert said[0] != b"127.0.0.1" and said[0] in said[1]
    saved = await public.save(tmp_path / "state", MIB)
    assert not set(saved.files_written()) & set(mounted.NAMES)


async def test_a_writer_in_the_background_is_ended(docker: DockerProvider, tmp_path: Path) -> None:
    sandbox = await sandbox_of(docker, tmp_path, limits=Limits(disk_bytes=8 * MIB))
    writer = (
        "while :; do for f in hosts hostname; do head -c 6000000 /dev/zero > /etc/$f; done; done"
    )
    await sh(sandbox, "1", f"({writer}) > /dev/null 2>&1 &")
    async with asyncio.timeout(60):
        while await sandbox.processes():
            await sh(sandbox, "looked", "true")
