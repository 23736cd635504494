"""What every provider of sandboxes with a whole root promises (``sandbox/images.py``).

A provider is a parameter of ``place`` and made in ``support/image_places.py``. Nothing here knows a
provider's ways.
"""

from __future__ import annotations

import asyncio
import hashlib
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import dockerd
from support.image_places import NEEDS_A_KERNEL, PLACES, Place, run, sh
from trialog.sandbox.errors import (
    FileMissingError,
    FileRefusedError,
    ImageError,
    InvalidNameError,
    SandboxBusyError,
    SandboxGoneError,
    SnapshotRefusedError,
)
from trialog.sandbox.images import ImageSandbox, ImageSpec, Recipe

MIB = 1 << 20


@pytest.fixture(params=["memory", "bubblewrap", pytest.param("docker", marks=dockerd.MARKS)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "memory" and request.node.originalname in NEEDS_A_KERNEL:
        pytest.skip("the twin has no such programs, users or signals")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async for made in PLACES[request.param](tmp_path, scratch):
        yield made


@pytest.fixture
async def sandbox(place: Place) -> ImageSandbox:
    return await place.start()


# Images


async def test_an_image_is_named_by_its_content(place: Place) -> None:
    digest = await place.provider.identify(place.recipe)
    images = await asyncio.gather(*(place.provider.build(place.recipe) for _ in range(3)))
    assert {image.digest for image in images} == {digest}
    assert len(digest) == 64


async def test_what_is_not_declared_or_built_is_refused(place: Place) -> None:
    nowhere = Recipe(place.scratch, None, docker_image="nobody.invalid/nothing:1")
    with pytest.raises(ImageError, match="images"):
        await place.provider.build(nowhere)
    with pytest.raises(ImageError):
        await place.provider.build(Recipe(place.scratch, None))
    with pytest.raises(ImageError):
        await place.provider.start("one", ImageSpec("0" * 64))


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 101, "a\0b"])
async def test_names_from_outside_never_become_paths(place: Place, name: str) -> None:
    image = await place.provider.build(place.recipe)
    with pytest.raises(InvalidNameError):
        await place.provider.start(name, ImageSpec(image.digest))


# Commands


async def test_exit_codes_and_streams(sandbox: ImageSandbox) -> None:
    result = await run(sandbox, "1", "echo out; echo err >&2; exit 7")
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"out\n", b"err\n")
    assert (await sandbox.exec("2", ["no-such-program"])).exit_code == 127


async def test_standard_input(sandbox: ImageSandbox) -> None:
    data = bytes(range(256)) * 400
    assert (await sandbox.exec("1", ["cat"], stdin=data)).stdout == data
    assert (await sandbox.exec("2", ["cat"])).stdout == b""


async def test_an_exec_id_runs_once(sandbox: ImageSandbox) -> None:
    runs = [run(sandbox, "same", f"echo {i}; echo x >> /tmp/ran") for i in range(3)]
    results = await asyncio.gather(*runs)
    assert len(set(results)) == 1
    assert await sandbox.read("/tmp/ran", 100) == b"x\n"


async def test_a_timeout_kills_what_the_command_started(sandbox: ImageSandbox) -> None:
    result = await run(sandbox, "1", "sleep 1000 & sleep 1000", timeout_s=0.3)
    assert (result.timed_out, result.exit_code) == (True, -9)
    await until_empty(sandbox)


async def until_empty(sandbox: ImageSandbox) -> None:
    """What was killed is dead a moment later; without a limit a failure would hang."""
    async with asyncio.timeout(20):
        while await sandbox.processes():
            pass


async def test_services_live_on_between_commands(sandbox: ImageSandbox) -> None:
    await sh(sandbox, "1", "(while :; do date > /tmp/beat; sleep 0.02; done) > /dev/null 2>&1 &")
    assert await sandbox.processes() >= 1
    beat = "rm -f /tmp/beat; until [ -s /tmp/beat ]; do sleep 0.01; done"
    assert (await run(sandbox, "2", beat, timeout_s=20)).exit_code == 0
    await sandbox.kill_all()
    assert await sandbox.processes() == 0
    assert await sh(sandbox, "3", "echo alive") == "alive\n"


async def test_defaults_and_what_overrides_them(place: Place) -> None:
    sandbox = await place.start(env={"A": "1", "B": "1"}, workdir="/tmp")
    assert await sh(sandbox, "1", "echo $A$B; pwd", env={"B": "2"}) == "12\n/tmp\n"
    assert await sh(sandbox, "2", "pwd", cwd="/etc") == "/etc\n"
    assert await sh(sandbox, "3", "echo $HOME") == "/root\n"
    assert "PATH=" in await sh(sandbox, "4", "env")


async def test_commands_of_other_users(place: Place, sandbox: ImageSandbox) -> None:
    unknown = await run(sandbox, "1", "true", user="nobody-knows")
    assert unknown.exit_code == 126
    assert b"nobody-knows" in unknown.stderr
    assert await sh(sandbox, "2", "id -u", user=0) == "0\n"
    if not place.many_ids:
        refused = await run(sandbox, "3", "id -u", user=1234)
        assert (refused.exit_code, bool(refused.stderr)) == (126, True)
        return
    lines = "worker:x:1234:1235:w:/srv:/bin/sh\n"
    group = "workers:x:1235:\nmore:x:1236:other,worker\n"
    await sh(sandbox, "4", f"printf '{lines}' >> /etc/passwd; printf '{group}' >> /etc/group")
    assert await sh(sandbox, "5", "id -u; id -G; echo $HOME", user="worker") == (
        "1234\n1235 1236\n/srv\n"
    )
    assert await sh(sandbox, "6", "id -u; id -g", user=777) == "777\n0\n"
    await sandbox.write("/root-only", b"secret", 0o600)
    assert (await run(sandbox, "7", "cat /root-only", user="worker")).exit_code != 0
    await sh(sandbox, "8", "touch /tmp/mine; chown worker:more /tmp/mine")
    assert await sh(sandbox, "9", "echo x > /tmp/mine; cat /tmp/mine", user="worker") == "x\n"


async def test_output_is_cut_at_its_limit(sandbox: ImageSandbox) -> None:
    result = await run(sandbox, "1", "head -c 300000 /dev/zero", output_limit_bytes=1000)
    assert (result.stdout, result.truncated) == (bytes(1000), True)


# Files


async def test_files_are_read_and_written(sandbox: ImageSandbox) -> None:
    await sandbox.write("/new/deep/tool", b"#!/bin/sh\necho run\n", 0o755)
    assert await sh(sandbox, "1", "/new/deep/tool; stat -c '%a %u' /new/deep/tool") == (
        "run\n755 0\n"
    )
    assert await sandbox.read("/new/deep/tool", 100) == b"#!/bin/sh\necho run\n"
    with pytest.raises(FileRefusedError):
        await sandbox.read("/new/deep/tool", 5)
    with pytest.raises(FileMissingError):
        await sandbox.read("/new/none", 5)
    for path in ("relative", "/a/../etc/passwd", "", "/a\0b"):
        with pytest.raises(InvalidNameError):
            await sandbox.read(path, 100)


async def test_state_is_kept_wherever_it_is_written(sandbox: ImageSandbox) -> None:
    for at, folder in enumerate(("/tmp", "/var", "/opt", "/root", "/home/x")):
        await sandbox.write(f"{folder}/kept", folder.encode())
        assert await sh(sandbox, str(at), f"cat {folder}/kept") == folder


async def test_a_folder_goes_in_and_comes_out(place: Place, sandbox: ImageSandbox) -> None:
    source = place.folder("in")
    (source / "sub/empty").mkdir(parents=True)
    (source / "run.sh").write_bytes(b"#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "sub/big").write_bytes(bytes(range(256)) * (10 * MIB // 256))
    (source / "sub/link").symlink_to("big")
    await sandbox.upload(source, "/work")
    seen = await sh(
        sandbox, "1", "cd /work; find . | sort; stat -c '%a %u' run.sh; readlink sub/link"
    )
    assert seen.split() == [
        ".", "./run.sh", "./sub", "./sub/big", "./sub/empty", "./sub/link", "755", "0", "big",
    ]  # fmt: skip
    pulled = await sandbox.download("/work", place.scratch / "out", 20 * MIB)
    assert sorted(pulled.files) == ["run.sh", "sub/big"]
    assert [path for path, _ in pulled.refused] == ["sub/link"]
    assert pulled.is_folder
    out = place.scratch / "out/sub/big"
    assert hashlib.sha256(out.read_bytes()).digest() == (
        hashlib.sha256((source / "sub/big").read_bytes()).digest()
    )
    one = await sandbox.download("/work/run.sh", place.scratch / "one", 20 * MIB)
    assert (one.files, one.is_folder) == (("run.sh",), False)


async def test_an_upload_lies_over_what_is_there(place: Place, sandbox: ImageSandbox) -> None:
    source = place.folder("in")
    (source / "a").mkdir()
    (source / "a/new").write_text("new")
    await sh(sandbox, "1", "mkdir -m 777 /logs; mkdir -p /logs/a; echo old > /logs/a/old")
    await sandbox.upload(source, "/logs")
    assert await sh(sandbox, "2", "stat -c %a /logs; cat /logs/a/*") == "777\nnewold\n"
    await sh(sandbox, "3", "rm -r /logs/a; ln -s /etc /logs/a")
    with pytest.raises(FileRefusedError):
        await sandbox.upload(source, "/logs")
    assert (await run(sandbox, "4", "cat /etc/new")).exit_code != 0


async def test_downloads_are_bounded(place: Place, sandbox: ImageSandbox) -> None:
    await sh(sandbox, "1", "mkdir -p /d/skip /d/s2; head -c 5000 /dev/zero > /d/a; cp /d/a /d/b")
    await sh(sandbox, "2", "touch /d/skip/x /d/s2/x.pyc /d/s2/y; mkfifo /d/pipe; ln -s a /d/link")
    pulled = await sandbox.download("/d", place.scratch / "out", 6000, ["skip", "*.pyc"])
    assert sorted(pulled.files) == ["a", "s2/y"]
    assert sorted(path for path, _ in pulled.refused) == ["b", "link", "pipe"]
    assert sorted(p.name for p in (place.scratch / "out").iterdir()) == ["a", "s2"]
    with pytest.raises(FileMissingError):
        await sandbox.download("/none", place.scratch / "out2", 6000)


# State


async def test_a_saved_state_is_started_from(place: Place, sandbox: ImageSandbox) -> None:
    script = (
        "mkdir -p /a/deep; echo 1 > /a/deep/f; chmod 751 /a; ln -s f /a/deep/l; ln /a/deep/f /a/h;"
        "rm -r /etc/shells /srv; rm -r /opt; mkdir /opt; echo o > /opt/own; echo w > /a/.wh.deep;"
        "printf x > '/a/new\nline'; mkdir -m 0 /dark; echo tmp > /tmp/t; mkfifo /a/p"
    )
    await sh(sandbox, "0", "mkdir -p /opt/pre /srv; touch /opt/pre/x /etc/shells")
    await sh(sandbox, "1", script)
    target = place.scratch / "state"
    saved = await sandbox.save(target, 10 * MIB)
    kinds = {entry.path: entry.kind for entry in saved.entries}
    assert (kinds["a/deep/f"], kinds["a/deep/l"], kinds["a/p"]) == ("file", "symlink", "other")
    assert saved.read("a/.wh.deep") == b"w\n"
    await sandbox.destroy()
    again = await place.start("two", states=(target,))
    look = "cat /a/deep/f /a/h /opt/own /tmp/t '/a/.wh.deep'; stat -c %a /a /dark; ls /opt"
    assert (await sh(again, "1", look)).split() == ["1", "1", "o", "tmp", "w", "751", "0", "own"]
    assert (await run(again, "2", "ls /etc/shells")).exit_code != 0
    assert await again.processes() == 0
    resaved = await again.save(place.scratch / "state2", 10 * MIB)
    assert resaved.digest() == saved.digest()


async def test_states_are_laid_over_one_another(place: Place, sandbox: ImageSandbox) -> None:
    await sh(sandbox, "1", "mkdir /d; echo 1 > /d/one; echo 1 > /d/both")
    await sandbox.save(place.scratch / "s1", MIB)
    other = await place.start("two")
    await sh(other, "1", "mkdir /d; echo 2 > /d/two; echo 2 > /d/both")
    await other.save(place.scratch / "s2", MIB)
    both = await place.start("three", states=(place.scratch / "s1", place.scratch / "s2"))
    assert (await sh(both, "1", "cd /d; cat both one two")).split() == ["2", "1", "2"]


async def test_a_states_digest_is_of_its_meaning(place: Place) -> None:
    one, two = await place.start("a"), await place.start("b")
    await sh(one, "1", "echo x > /x; echo y > /y")
    await sh(two, "1", "echo y > /y; sleep 0.01; echo x > /x; touch -d 2001-01-01 /y")
    first = await one.save(place.scratch / "1", MIB)
    assert first.digest() == (await two.save(place.scratch / "2", MIB)).digest()
    await sh(two, "2", "chmod 600 /x")
    assert first.digest() != (await two.save(place.scratch / "2", MIB)).digest()


async def test_processes_stand_still_while_saved_and_go_on(
    place: Place, sandbox: ImageSandbox
) -> None:
    writer = "i=0; while :; do i=$((i+1)); echo $i > /a; echo $i > /b; done > /dev/null 2>&1 &"
    await sh(sandbox, "1", writer)
    await sh(sandbox, "begun", "until [ -s /b ]; do :; done")
    for at in range(5):
        saved = await sandbox.save(place.scratch / f"s{at}", MIB)
        first, second = (int(saved.read(name) or b"0") for name in ("a", "b"))
        assert first - second in (0, 1) or 0 in (first, second)  # empty while it is written anew
    watch = 'old=$(cat /a); until [ "$(cat /a)" != "$old" ]; do :; done'
    assert (await run(sandbox, "2", watch, timeout_s=20)).exit_code == 0


async def test_programs_that_start_programs_stand_still_too(
    place: Place, sandbox: ImageSandbox
) -> None:
    """A shell waits in vfork for its child to begin: no signal stops it there, and none need."""
    loop = "i=0; while :; do i=$((i+1)); echo $i > /n.new; mv /n.new /n; done > /dev/null 2>&1 &"
    await sh(sandbox, "1", f"{loop} {loop} until [ -s /n ]; do :; done")
    for at in range(10):
        await sandbox.save(place.scratch / f"s{at}", MIB)
    watch = 'old=$(cat /n); until [ "$(cat /n)" != "$old" ]; do :; done'
    assert (await run(sandbox, "2", watch, timeout_s=20)).exit_code == 0


async def test_a_command_waits_for_the_save_under_way(place: Place, sandbox: ImageSandbox) -> None:
    await sh(sandbox, "0", "mkdir /many; cd /many; for i in $(seq 2000); do echo $i > $i; done")
    saving = asyncio.ensure_future(sandbox.save(place.scratch / "s", 10 * MIB))
    runs = [asyncio.ensure_future(run(sandbox, f"r{at}", "echo x > /ran")) for at in range(5)]
    assert [(await each).exit_code for each in runs] == [0] * 5
    await saving
    assert await sandbox.read("/ran", 10) == b"x\n"


async def test_what_was_stopped_stays_so(place: Place, sandbox: ImageSandbox) -> None:
    await sh(sandbox, "1", "sleep 1000 > /dev/null 2>&1 & echo $! > /pid; kill -STOP $!")
    stopped = "grep -q '^State:.T' /proc/$(cat /pid)/status"
    await sh(sandbox, "2", f"until {stopped}; do :; done")
    await sandbox.save(place.scratch / "s", MIB)
    await sh(sandbox, "3", stopped)


async def test_too_much_is_not_saved(place: Place, sandbox: ImageSandbox) -> None:
    await sh(sandbox, "1", "head -c 100000 /dev/zero > /big")
    with pytest.raises(SnapshotRefusedError):
        await sandbox.save(place.scratch / "s", 50_000)
    assert not (place.scratch / "s").exists()
    assert await sh(sandbox, "2", "echo alive") == "alive\n"


async def test_a_broken_state_starts_nothing(place: Place) -> None:
    image = await place.provider.build(place.recipe)
    for name, member in (("up", "../up"), ("ok", "ok")):
        path = place.scratch / name
        with tarfile.open(path, "w") as archive:
            archive.addfile(tarfile.TarInfo(member))
        if name == "ok":
            path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(ImageError):
            await place.provider.start("one", ImageSpec(image.digest, states=(path,)))
    with pytest.raises(SandboxGoneError):
        await place.provider.resume("one")


# Lives


async def test_writes_reach_neither_the_image_nor_a_sibling(place: Place) -> None:
    one, two = await place.start("a"), await place.start("b")
    await sh(one, "1", "echo changed >> /etc/passwd; echo new > /n; rm -r /var/tmp")
    assert "changed" not in await sh(two, "1", "cat /etc/passwd; ls -d /var/tmp")
    with pytest.raises(FileMissingError):
        await two.read("/n", 100)
    assert "changed" not in await sh(await place.start("c"), "1", "cat /etc/passwd")


async def test_start_and_resume_give_the_same_sandbox(place: Place) -> None:
    one, again = await asyncio.gather(place.start("x"), place.start("x"))
    await one.write("/kept", b"kept")
    assert await again.read("/kept", 100) == b"kept"
    resumed = await place.provider.resume("x")
    assert await resumed.read("/kept", 100) == b"kept"
    assert resumed.image == one.image
    assert await place.provider.sweep([]) == []
    with pytest.raises(SandboxGoneError):
        await place.provider.resume("never-made")


async def test_an_id_means_one_image(place: Place, sandbox: ImageSandbox) -> None:
    (place.scratch / "Dockerfile").write_text(f"FROM {place.recipe.docker_image}\nENV A=b\n")
    other = Recipe(place.scratch, images=place.recipe.images)
    image = await place.provider.build(other)
    assert image.env["A"] == "b"
    with pytest.raises(SandboxBusyError):
        await place.provider.start(sandbox.sandbox_id, ImageSpec(image.digest))


async def test_destroy_ends_it(place: Place, sandbox: ImageSandbox) -> None:
    slow = asyncio.ensure_future(sandbox.exec("slow", ["sleep", "1000"]))
    await sh(sandbox, "1", "sleep 1000 > /dev/null 2>&1 &")
    await asyncio.gather(sandbox.destroy(), sandbox.destroy())
    await sandbox.destroy()
    with pytest.raises(SandboxGoneError):
        await slow
    with pytest.raises(SandboxGoneError):
        await sandbox.exec("2", ["true"])
    with pytest.raises(SandboxGoneError):
        await sandbox.save(place.scratch / "s", MIB)
    with pytest.raises(SandboxGoneError):
        await place.provider.resume("one")
    fresh = await place.start("one")
    assert await fresh.processes() == 0
