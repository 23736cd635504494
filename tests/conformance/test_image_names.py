"""The names that a sandbox has, its own and those it knows: files of its state as any other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import dockerd
from support.image_places import PLACES, Place, run, sh
from trialog.sandbox.errors import SnapshotRefusedError
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.provider import Limits
from trialog.sandbox.rootfs import skeleton

MIB = 1 << 20
NAMES = ("etc/hosts", "etc/hostname", "etc/resolv.conf")  # a daemon mounts its own over them


@pytest.fixture(params=["bubblewrap", pytest.param("docker", marks=dockerd.MARKS)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async for made in PLACES[request.param](tmp_path, scratch):
        yield made


@pytest.fixture
async def sandbox(place: Place) -> ImageSandbox:
    return await place.start()


async def test_the_names_of_a_sandbox_are_of_its_state(place: Place, sandbox: ImageSandbox) -> None:
    untouched = await sandbox.save(place.scratch / "untouched", MIB)
    assert not [entry for entry in untouched.entries if entry.path in NAMES]
    script = (
        "echo 127.0.0.1 mine >> /etc/hosts; echo other > /etc/hostname; chmod 600 /etc/hostname;"
        "cp /etc/hosts /mine; mkdir -p /etc/own; : > /etc/own/f"
    )
    await sh(sandbox, "1", script)
    saved = await sandbox.save(place.scratch / "state", MIB)
    # The same with every provider.
    assert saved.read("etc/hosts") == skeleton.NAMES["etc/hosts"].encode() + b"127.0.0.1 mine\n"
    assert saved.read("etc/hostname") == b"other\n"
    assert "etc/resolv.conf" not in saved.files_written()
    again = await place.start("again", states=(place.scratch / "state",))
    look = "cmp /etc/hosts /mine && cat /etc/hostname && stat -c %a /etc/hostname /etc/hosts"
    assert (await sh(again, "1", look)).split() == ["other", "600", "644"]
    assert (await again.save(place.scratch / "again", MIB)).digest() == saved.digest()
    await sh(again, "2", "echo name > /etc/resolv.conf; : > /etc/hosts")
    emptied = await again.save(place.scratch / "emptied", MIB)
    assert (emptied.read("etc/hosts"), emptied.read("etc/resolv.conf")) == (b"", b"name\n")
    last = await place.start("last", states=(place.scratch / "state", place.scratch / "emptied"))
    assert await sh(last, "1", "cat /etc/hosts /etc/hostname /etc/resolv.conf") == "other\nname\n"


async def test_they_are_bounded_as_the_rest(place: Place) -> None:
    sandbox = await place.start(limits=Limits(disk_bytes=8 * MIB))
    await sh(sandbox, "1", "head -c 2000000 /dev/zero > /etc/hosts")
    with pytest.raises(SnapshotRefusedError, match="1048576 bytes"):
        await sandbox.save(place.scratch / "state", MIB)
    script = "for f in /etc/hosts /etc/hostname; do head -c 7000000 /dev/zero > $f; done; sleep 30"
    assert (await run(sandbox, "2", script, timeout_s=60)).limit == "disk"
