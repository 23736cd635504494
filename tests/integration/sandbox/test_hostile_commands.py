"""Commands that attack their sandbox (invariant I7 and the limits)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from trialog.sandbox.errors import FileRefusedError, SnapshotRefusedError
from trialog.sandbox.provider import ExecResult, Limits, Sandbox, SandboxSpec

MIB = 1 << 20


@pytest.fixture
async def sandbox(provider: BubblewrapProvider, spec: SandboxSpec) -> BubblewrapSandbox:
    limits = Limits(memory_bytes=128 * MIB, pids=40, disk_bytes=16 * MIB)
    return await provider.create("hostile", replace(spec, limits=limits))


async def sh(sandbox: Sandbox, name: str, script: str, timeout_s: float = 20) -> ExecResult:
    return await sandbox.exec(name, ["sh", "-c", script], timeout_s=timeout_s)


async def processes(sandbox: Sandbox, name: str) -> list[str]:
    """Names of everything running inside but PID 1 and the look itself."""
    script = 'for p in /proc/[0-9]*; do [ "$p" != "/proc/$$" ] && head -n 1 $p/comm; done'
    seen = (await sh(sandbox, name, script)).stdout.decode().split()
    return [comm for comm in seen if comm not in (".init", "head")]


@pytest.mark.parametrize(
    "script",
    [
        "echo x > /usr/x",
        "echo x > /etc/passwd",
        "echo x > /x",
        "echo x > /run/.init",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo x > /proc/sys/vm/drop_caches",
        "echo x > /dev/x",
        "mount -t tmpfs none /tmp",
        "umount /world",
        "unshare -U true",
        "unshare -m true",
        "cat /proc/1/environ",
        "ls /proc/1/root/",
        "cat /etc/shadow",
        "ls /root /home /var /sys /sys/fs/cgroup",
        "mknod /world/disk b 254 0",
        "chroot /usr /bin/true",
        "dmesg",
        "hostname other",
    ],
)
async def test_what_must_fail(sandbox: BubblewrapSandbox, script: str) -> None:
    assert (await sh(sandbox, "1", script)).exit_code not in (0, 127)


async def test_pid_1_survives_its_children(sandbox: BubblewrapSandbox) -> None:
    signals = "for s in 1 2 3 9 11 13 15 17 19 25; do kill -$s 1; done; kill -9 -1; true"
    await sh(sandbox, "1", signals)
    assert (await sh(sandbox, "2", "echo alive")).stdout == b"alive\n"


async def test_there_is_no_network(sandbox: BubblewrapSandbox) -> None:
    seen = (await sh(sandbox, "1", "cat /proc/net/route /proc/net/dev")).stdout.decode()
    assert "eth" not in seen
    assert [line.split(":")[0].strip() for line in seen.splitlines() if ":" in line] == ["lo"]


async def test_foreign_socket_families_are_refused(sandbox: BubblewrapSandbox) -> None:
    code = (
        "import socket\n"
        "for family in (40, 38, 17):\n"  # AF_VSOCK, AF_ALG, AF_PACKET
        "    try: socket.socket(family, socket.SOCK_STREAM)\n"
        "    except OSError as error: print(error.errno)\n"
        "socket.socket(socket.AF_UNIX); socket.socket(socket.AF_INET)\n"
    )
    found = await sandbox.exec("1", ["python3", "-c", code])
    if found.exit_code == 127:
        pytest.skip("the host has no python3 below /usr")
    assert found.stdout.split() == [b"97"] * 3


async def test_a_daemon_survives_its_command_but_not_kill_all(sandbox: BubblewrapSandbox) -> None:
    await sh(sandbox, "1", "setsid sh -c 'sleep 1000 & sleep 1000' & exit 0")
    assert await processes(sandbox, "2")
    await sandbox.kill_all()
    assert await processes(sandbox, "3") == []


async def test_a_command_ends_when_its_process_does(sandbox: BubblewrapSandbox) -> None:
    """A child that keeps the pipes open holds nothing up, and can go on writing to them."""
    script = "echo first; (while sleep 0.01; do echo more; date +%N > /tmp/beat; done) & exit 3"
    result = await sh(sandbox, "1", script)
    assert (result.exit_code, result.stdout) == (3, b"first\n")
    watch = "old=$(cat /tmp/beat); until [ $(cat /tmp/beat) != $old ]; do sleep 0.01; done"
    assert (await sh(sandbox, "2", f"until [ -s /tmp/beat ]; do :; done; {watch}")).exit_code == 0


async def test_a_timeout_takes_the_whole_tree(sandbox: BubblewrapSandbox) -> None:
    script = "sleep 1000 & (sleep 1001 & sleep 1002) & setsid sleep 1003 & sleep 1004"
    assert (await sh(sandbox, "1", script, timeout_s=0.3)).timed_out
    assert await processes(sandbox, "2") == []


async def test_a_timeout_spares_other_commands(sandbox: BubblewrapSandbox) -> None:
    await sh(sandbox, "service", "sleep 1000 & exit 0")
    assert (await sh(sandbox, "1", "sleep 1001", timeout_s=0.1)).timed_out
    assert await processes(sandbox, "2") == ["sleep"]


async def test_a_fork_bomb_is_held(sandbox: BubblewrapSandbox) -> None:
    bomb = await sh(sandbox, "1", "f() { f | f & }; f; sleep 1000", timeout_s=1.0)
    assert bomb.exit_code != 0
    await sandbox.kill_all()
    assert await processes(sandbox, "2") == []


async def test_a_memory_hog_is_killed(sandbox: BubblewrapSandbox) -> None:
    """It holds what it took for a while: where a watchdog looks, it must get to see it."""
    hog_of = "head -c 400000000 /dev/zero | tail -c 400000000 | { sleep 2; wc -c; }"
    hog = await sh(sandbox, "1", hog_of)
    assert hog.stdout.strip() != b"400000000"
    assert (await sh(sandbox, "2", "echo alive")).stdout == b"alive\n"


async def test_temporary_files_are_bounded(sandbox: BubblewrapSandbox) -> None:
    for folder in ("/tmp", "/dev/shm"):
        filler = f"dd if=/dev/zero of={folder}/fill bs=1M count=400"
        assert (await sh(sandbox, folder, filler)).exit_code != 0


async def test_one_huge_file_is_refused(sandbox: BubblewrapSandbox) -> None:
    assert (await sh(sandbox, "1", "dd if=/dev/zero of=big bs=1M count=400")).exit_code != 0
    assert (await sh(sandbox, "2", "truncate -s 1T sparse")).exit_code != 0


async def test_many_files_over_the_disk_limit_end_the_command(sandbox: BubblewrapSandbox) -> None:
    script = "i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > f$i; done"
    assert (await sh(sandbox, "1", script)).limit == "disk"
    with pytest.raises(SnapshotRefusedError):
        await sandbox.snapshot()


async def test_the_disk_watchdog_sees_every_folder(sandbox: BubblewrapSandbox) -> None:
    script = "for i in $(seq 300); do mkdir $i; done; i=0; cd 299;"
    filler = "while :; do i=$((i+1)); head -c 1000000 /dev/zero > f$i; done"
    assert (await sh(sandbox, "1", script + filler)).limit == "disk"


async def test_an_output_flood_is_cut(sandbox: BubblewrapSandbox) -> None:
    flood = await sh(sandbox, "1", "head -c 50000000 /dev/zero; head -c 50000000 /dev/zero >&2")
    assert flood.truncated
    assert len(flood.stdout) == len(flood.stderr) == MIB


@pytest.mark.parametrize(
    "plant",
    [
        "ln -s /etc/passwd answer.txt",
        "ln -s docs/doc-0.txt answer.txt",
        "mkfifo answer.txt",
        "mkdir answer.txt",
        "mkdir d; cp docs/doc-0.txt d/answer.txt; ln -s d e; ln -s e/answer.txt answer.txt",
    ],
)
async def test_an_answer_that_is_no_plain_file(sandbox: BubblewrapSandbox, plant: str) -> None:
    assert (await sh(sandbox, "1", plant)).exit_code == 0
    with pytest.raises(FileRefusedError):
        await sandbox.read("answer.txt", 1000)
    with pytest.raises(FileRefusedError):
        (await sandbox.snapshot()).read("answer.txt")


@pytest.mark.parametrize("path", ["/dev/zero", "/proc/1/cmdline", "/proc/self/environ", "e/a.txt"])
async def test_reads_follow_nothing_and_open_no_device(
    sandbox: BubblewrapSandbox, path: str
) -> None:
    await sh(sandbox, "1", "mkdir d; echo x > d/a.txt; ln -s d e")
    with pytest.raises(FileRefusedError):
        await sandbox.read(path, 1000)


async def test_a_write_is_not_led_astray(sandbox: BubblewrapSandbox) -> None:
    await sh(sandbox, "1", "ln -s /tmp out; ln -s /tmp/hit answer.txt; mkfifo pipe; mkdir d")
    with pytest.raises(FileRefusedError):
        await sandbox.write("out/x", b"x")
    with pytest.raises(FileRefusedError):
        await sandbox.write("d", b"x")
    for path in ("answer.txt", "pipe"):
        await sandbox.write(path, b"ours")
        assert await sandbox.read(path, 10) == b"ours"
    assert (await sh(sandbox, "2", "ls /tmp")).stdout == b""


async def test_a_race_of_symlinks_wins_nothing(sandbox: BubblewrapSandbox) -> None:
    script = "while :; do echo own > a; mv a answer.txt; ln -s /etc/passwd b; mv b answer.txt; done"
    racing = asyncio.ensure_future(sh(sandbox, "race", script))
    seen: set[bytes] = set()
    while len(seen) < 1 or not racing.done():
        try:
            seen.add(await sandbox.read("answer.txt", 10_000))
        except FileRefusedError:
            seen.add(b"")
        if len(seen) > 1:
            await sandbox.kill_all()
    await racing
    assert seen <= {b"", b"own\n"}


async def test_unreadable_and_odd_files_are_in_the_snapshot(sandbox: BubblewrapSandbox) -> None:
    script = (
        "echo s > shut; chmod 000 shut; mkdir dark; echo d > dark/in; chmod 000 dark; mkfifo pipe;"
        "echo w > .wh.docs; chmod +x docs/doc-0.txt; rm -r docs/doc-1.txt; printf 'a' > 'new\nline'"
    )
    assert (await sh(sandbox, "1", script)).exit_code == 0
    snapshot = await sandbox.snapshot()
    kinds = {entry.path: entry.kind for entry in snapshot.entries}
    assert kinds["pipe"] == "other"
    assert kinds["docs/doc-1.txt"] == "deleted"
    assert (snapshot.read("shut"), snapshot.read("dark/in")) == (b"s\n", b"d\n")
    assert (snapshot.read(".wh.docs"), snapshot.read("new\nline")) == (b"w\n", b"a")
    assert next(e for e in snapshot.entries if e.path == "docs/doc-0.txt").executable


async def test_a_folder_made_anew_hides_what_was_in_it(sandbox: BubblewrapSandbox) -> None:
    await sh(sandbox, "1", "rm -r docs; mkdir docs; echo only > docs/only.txt")
    entries = [(e.path, e.kind) for e in (await sandbox.snapshot()).entries]
    assert entries == [("docs", "deleted"), ("docs", "dir"), ("docs/only.txt", "file")]


async def test_a_bottomless_folder_is_refused_and_removed(
    sandbox: BubblewrapSandbox, tmp_path: Path
) -> None:
    """No path of 4,096 bytes reaches its end, so it is grown from above.

    The disk watchdog may end the command before it is through: it refuses such depths too.
    """
    script = (
        "mkdir d; for i in 1 2 3 4 5; do below=$(printf 'e/%.0s' $(seq 1000));"
        "mkdir -p $below && mv d $below && mv e d || exit 1; done"
    )
    built = await sh(sandbox, "1", script, timeout_s=60)
    assert built.exit_code == 0 or built.limit == "disk"
    with pytest.raises(SnapshotRefusedError):
        await sandbox.snapshot()
    await sandbox.destroy()
    assert list((tmp_path / "run").iterdir()) == []
