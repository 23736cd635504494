"""What every sandbox provider promises, on the in-memory twin and on bubblewrap.

Commands keep to the few words that the twin's shell knows.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.errors import (
    FileMissingError,
    FileRefusedError,
    InvalidNameError,
    SandboxBusyError,
    SandboxGoneError,
    WorldError,
)
from trialog.sandbox.memory import MemoryProvider
from trialog.sandbox.provider import Sandbox, SandboxProvider, SandboxSpec
from trialog.sandbox.worlds.archive import pack

FILES = {"docs/a.txt": b"alpha\n", "docs/b.txt": b"beta\n", "top.txt": b"top\n"}
TAR = pack(FILES)
DIGEST = hashlib.sha256(TAR).hexdigest()
SPEC = SandboxSpec(DIGEST)


@pytest.fixture(params=["memory", "bubblewrap"])
async def provider(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[SandboxProvider]:
    made: SandboxProvider
    made = MemoryProvider() if request.param == "memory" else BubblewrapProvider(tmp_path)
    await made.prepare(DIGEST, TAR)
    yield made
    await made.close()


@pytest.fixture
async def sandbox(provider: SandboxProvider) -> Sandbox:
    return await provider.create("one", SPEC)


async def sh(sandbox: Sandbox, exec_id: str, script: str, **options: object) -> str:
    result = await sandbox.exec(exec_id, ["sh", "-c", script], **options)  # type: ignore[arg-type]
    assert result.exit_code == 0, result
    return result.stdout.decode()


async def test_probe_names_the_provider(provider: SandboxProvider) -> None:
    assert (await provider.probe()).provider in ("memory", "bubblewrap")


async def test_prepare_is_repeatable_and_checks_the_digest(provider: SandboxProvider) -> None:
    await asyncio.gather(*(provider.prepare(DIGEST, TAR) for _ in range(3)))
    assert await provider.prepared(DIGEST)
    other = "0" * 64
    assert not await provider.prepared(other)
    with pytest.raises(WorldError):
        await provider.prepare(other, TAR)
    with pytest.raises(WorldError):
        await provider.create("two", SandboxSpec(other))


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 101, "a\0b"])
async def test_names_from_outside_never_become_paths(provider: SandboxProvider, name: str) -> None:
    with pytest.raises(InvalidNameError):
        await provider.create(name, SPEC)
    with pytest.raises(InvalidNameError):
        await provider.create("fine", SandboxSpec(name))


async def test_a_command_sees_the_world(sandbox: Sandbox) -> None:
    assert await sh(sandbox, "1", "cat docs/a.txt && cat /world/docs/b.txt") == "alpha\nbeta\n"
    assert await sh(sandbox, "2", "cat a.txt", cwd="docs") == "alpha\n"


async def test_exit_codes_and_streams(sandbox: Sandbox) -> None:
    result = await sandbox.exec("1", ["sh", "-c", "echo out; cat nowhere; exit 7"])
    assert (result.exit_code, result.stdout) == (7, b"out\n")
    assert b"nowhere" in result.stderr
    assert (await sandbox.exec("2", ["no-such-program"])).exit_code == 127


async def test_standard_input(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 400
    assert (await sandbox.exec("1", ["cat"], stdin=data)).stdout == data
    assert (await sandbox.exec("2", ["cat"])).stdout == b""


async def test_an_exec_id_runs_once(sandbox: Sandbox) -> None:
    first = await sandbox.exec("same", ["sh", "-c", "echo first"])
    again = await sandbox.exec("same", ["sh", "-c", "echo second"])
    assert first == again
    assert first.stdout == b"first\n"


async def test_a_repeated_exec_id_waits_for_the_run_under_way(sandbox: Sandbox) -> None:
    runs = [sandbox.exec("same", ["sh", "-c", "sleep 0.2; echo done"]) for _ in range(3)]
    results = await asyncio.gather(*runs)
    assert [r.stdout for r in results] == [b"done\n"] * 3


async def test_a_cancelled_wait_leaves_the_command_running(sandbox: Sandbox) -> None:
    waiting = asyncio.ensure_future(sandbox.exec("slow", ["sh", "-c", "sleep 0.3; echo kept"]))
    await sh(sandbox, "later", "true")  # answered after the first command was started
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await sandbox.exec("slow", ["false"])).stdout == b"kept\n"


async def test_commands_run_side_by_side(sandbox: Sandbox) -> None:
    slow = asyncio.ensure_future(sandbox.exec("slow", ["sleep", "infinity"], timeout_s=60))
    assert await sh(sandbox, "quick", "echo quick") == "quick\n"
    assert not slow.done()
    await sandbox.kill_all()
    assert (await slow).exit_code == -9


async def test_timeout_kills(sandbox: Sandbox) -> None:
    result = await sandbox.exec("1", ["sh", "-c", "sleep infinity; true"], timeout_s=0.1)
    assert (result.timed_out, result.exit_code) == (True, -9)
    assert await sh(sandbox, "2", "echo alive") == "alive\n"


async def test_output_is_cut_at_its_limit(sandbox: Sandbox) -> None:
    data = b"x" * 300_000
    result = await sandbox.exec("1", ["cat"], stdin=data, output_limit_bytes=1000)
    assert (result.stdout, result.truncated) == (data[:1000], True)
    result = await sandbox.exec("2", ["cat"], stdin=data[:1000], output_limit_bytes=1000)
    assert (len(result.stdout), result.truncated) == (1000, False)


async def test_writes_reach_neither_the_world_nor_a_sibling(provider: SandboxProvider) -> None:
    one, two = [await provider.create(name, SPEC) for name in ("a", "b")]
    await sh(one, "1", "echo changed > docs/a.txt; rm docs/b.txt; echo new > n.txt")
    assert await sh(two, "1", "cat docs/a.txt docs/b.txt") == "alpha\nbeta\n"
    with pytest.raises(FileMissingError):
        await two.read("n.txt", 100)
    three = await provider.create("c", SPEC)
    assert await sh(three, "1", "cat docs/a.txt docs/b.txt") == "alpha\nbeta\n"


async def test_files_are_read_and_written(sandbox: Sandbox) -> None:
    assert await sandbox.read("docs/a.txt", 100) == b"alpha\n"
    await sandbox.write("new/deep/file.bin", b"\0\1" * 5000)
    assert await sandbox.read("/world/new/deep/file.bin", 10_000) == b"\0\1" * 5000
    await sandbox.write("docs/a.txt", b"again")
    assert await sh(sandbox, "1", "cat docs/a.txt") == "again"
    await sandbox.write("/tmp/aside", b"outside of the world")
    assert await sandbox.read("/tmp/aside", 100) == b"outside of the world"


async def test_refused_files(sandbox: Sandbox) -> None:
    with pytest.raises(FileMissingError):
        await sandbox.read("docs/none.txt", 100)
    with pytest.raises(FileRefusedError):
        await sandbox.read("docs/a.txt", 5)
    for path in ("../etc/passwd", "docs/../../etc/passwd", "", "a\0b"):
        with pytest.raises(InvalidNameError):
            await sandbox.read(path, 100)


async def test_the_snapshot_is_the_difference_to_the_world(sandbox: Sandbox) -> None:
    assert (await sandbox.snapshot()).entries == ()
    await sh(sandbox, "1", "echo b > answer.txt; echo c > docs/z.txt; rm docs/b.txt")
    await sh(sandbox, "2", "echo changed > docs/a.txt; echo out > /tmp/elsewhere")
    snapshot = await sandbox.snapshot()
    assert snapshot.files_written() == ["answer.txt", "docs/a.txt", "docs/z.txt"]
    assert [e.path for e in snapshot.entries if e.kind == "deleted"] == ["docs/b.txt"]
    assert snapshot.read("answer.txt") == b"b\n"
    with pytest.raises(FileMissingError):
        snapshot.read("docs/b.txt")


async def test_the_same_end_state_has_the_same_digest(provider: SandboxProvider) -> None:
    one, two = [await provider.create(name, SPEC) for name in ("a", "b")]
    await sh(one, "1", "echo x > x.txt; echo y > y.txt")
    await sh(two, "1", "echo y > y.txt && sleep 0.01 && echo x > x.txt")
    assert (await one.snapshot()).digest() == (await two.snapshot()).digest()
    await sh(two, "2", "echo z > y.txt")
    assert (await one.snapshot()).digest() != (await two.snapshot()).digest()


async def test_a_snapshot_ends_what_is_running(sandbox: Sandbox) -> None:
    slow = asyncio.ensure_future(sandbox.exec("slow", ["sleep", "infinity"], timeout_s=60))
    await sh(sandbox, "1", "true")
    await sandbox.snapshot()
    assert (await slow).exit_code == -9


async def test_create_and_attach_give_the_same_sandbox(provider: SandboxProvider) -> None:
    one, again = await asyncio.gather(provider.create("x", SPEC), provider.create("x", SPEC))
    await sh(one, "1", "echo kept > kept.txt")
    assert await again.read("kept.txt", 100) == b"kept\n"
    attached = await provider.attach("x")
    assert await attached.read("kept.txt", 100) == b"kept\n"
    other = pack({"other": b""})
    await provider.prepare(hashlib.sha256(other).hexdigest(), other)
    with pytest.raises(SandboxBusyError):
        await provider.create("x", SandboxSpec(hashlib.sha256(other).hexdigest()))


async def test_destroy_ends_it(provider: SandboxProvider, sandbox: Sandbox) -> None:
    await sandbox.write("x", b"x")
    await asyncio.gather(sandbox.destroy(), sandbox.destroy())
    await sandbox.destroy()
    with pytest.raises(SandboxGoneError):
        await sandbox.exec("1", ["true"])
    with pytest.raises(SandboxGoneError):
        await sandbox.read("x", 10)
    with pytest.raises(SandboxGoneError):
        await provider.attach("one")
    fresh = await provider.create("one", SPEC)
    assert (await fresh.snapshot()).entries == ()


async def test_destroy_during_a_command(sandbox: Sandbox) -> None:
    slow = asyncio.ensure_future(sandbox.exec("slow", ["sleep", "infinity"], timeout_s=60))
    await sh(sandbox, "1", "true")
    await sandbox.destroy()
    with pytest.raises(SandboxGoneError):
        await slow


async def test_attach_and_sweep_find_nothing_that_is_not_there(provider: SandboxProvider) -> None:
    with pytest.raises(SandboxGoneError):
        await provider.attach("never-made")
    await provider.create("mine", SPEC)
    assert await provider.sweep([]) == []
    await (await provider.attach("mine")).write("x", b"x")
