"""What commands could take beside the limits' usual accounts: nameless files, shares, threads."""

from __future__ import annotations

import ctypes
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from trialog.sandbox.bubblewrap import cgroups
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.bubblewrap.rooted import RootedSandbox
from trialog.sandbox.images import ImageSpec, Recipe
from trialog.sandbox.provider import Limits

MIB = 1 << 20
LIMITS = Limits(memory_bytes=128 * MIB, pids=60, disk_bytes=32 * MIB)


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[BubblewrapProvider]:
    made = BubblewrapProvider(tmp_path / "p", orphan_s=0)
    yield made
    await made.close()


async def start(provider: BubblewrapProvider, name: str) -> RootedSandbox:
    recipe = Recipe(Path("/"), None, docker_image="base", images={"base": "host"})
    image = await provider.build(recipe)
    return await provider.start(name, ImageSpec(image.digest, LIMITS))


@pytest.fixture
async def sandbox(provider: BubblewrapProvider) -> RootedSandbox:
    return await start(provider, "hostile")


@pytest.mark.parametrize(
    "hide",
    ["", "os.setuid(1000)", "ctypes.CDLL(None).prctl(4, 0)"],
    ids=["as it is", "another user", "not dumpable"],
)
async def test_a_disk_filler_whose_files_have_no_name_is_ended(
    sandbox: RootedSandbox, hide: str
) -> None:
    code = (
        "import ctypes, os, time\n"
        "files = [open(f'/tmp/{i}', 'wb') for i in range(10)]\n"
        f"[os.unlink(f'/tmp/{{i}}') for i in range(10)]\n{hide}\n"
        "for file in files: file.write(bytes(5_000_000)); file.flush()\n"
        "time.sleep(60)\n"
    )
    result = await sandbox.exec("1", ["python3", "-c", code], timeout_s=20)
    assert (result.limit, result.timed_out) == ("disk", False)


async def test_names_taken_from_small_files_and_memory_are_no_fault(
    sandbox: RootedSandbox,
) -> None:
    code = (
        "import os, time\n"
        "file = open('/tmp/f', 'wb'); os.unlink('/tmp/f'); file.write(bytes(8_000_000))\n"
        "same = [os.dup(file.fileno()) for _ in range(20)]\n"
        "memory = os.memfd_create('m'); os.write(memory, bytes(40_000_000))\n"
        "time.sleep(1.2)\n"
    )
    assert (await sandbox.exec("1", ["python3", "-c", code])).exit_code == 0


TAKE = """
import ctypes, os, time
take = ctypes.CDLL(None).inotify_init
for uid in range(20):
    if not os.fork():
        os.setuid(1000 + uid)
        n = sum(take() >= 0 for _ in range(200))
        print(n, flush=True)
        time.sleep(600)
"""


async def test_one_sandbox_does_not_take_every_inotify_of_the_host(
    provider: BubblewrapProvider,
) -> None:
    if os.geteuid():
        pytest.skip("without a range of ids all is charged to the worker's own user")
    greedy, other = await start(provider, "greedy"), await start(provider, "other")
    script = 'python3 -c "$0" > /tmp/n & until [ "$(wc -l < /tmp/n)" = 20 ]; do sleep 0.1; done'
    taken = await greedy.exec("1", ["sh", "-c", f"{script}; cat /tmp/n", TAKE], timeout_s=20)
    assert 0 < sum(map(int, taken.stdout.split())) < 20 * 200
    one = "import ctypes; raise SystemExit(ctypes.CDLL(None).inotify_init() < 0)"
    assert (await other.exec("1", ["python3", "-c", one])).exit_code == 0
    ours = ctypes.CDLL(None).inotify_init()
    assert ours >= 0
    os.close(ours)


async def test_no_command_looks_into_others_as_pid_1_does(sandbox: RootedSandbox) -> None:
    seen = await sandbox.exec("1", ["grep", "-E", "Cap(Eff|Prm|Bnd)", "/proc/self/status"])
    masks = [int(line.split()[1], 16) for line in seen.stdout.splitlines()]
    assert len(masks) == 3
    assert not any(mask & 1 << 19 for mask in masks)


async def test_a_process_whose_first_thread_ended_is_alive_and_stands_still(
    sandbox: RootedSandbox, tmp_path: Path
) -> None:
    code = (
        "import ctypes, platform, threading\n"
        "def beat():\n"
        "    n = 0\n"
        "    while True:\n"
        "        n += 1\n"
        "        open('/beat', 'w').write(str(n))\n"
        "threading.Thread(target=beat).start()\n"
        "ctypes.CDLL(None).syscall(60 if platform.machine() == 'x86_64' else 93, 0)\n"
    )
    await sandbox.exec("1", ["sh", "-c", 'python3 -c "$0" > /dev/null 2>&1 &', code])
    wait = "until [ -s /beat ] && grep -q '^State:.Z' /proc/[0-9]*/status; do :; done"
    assert (await sandbox.exec("2", ["sh", "-c", wait], timeout_s=20)).exit_code == 0
    assert await sandbox.processes() == 1
    await sandbox.save(tmp_path / "state", MIB)
    await sandbox.kill_all()
    assert await sandbox.processes() == 0


def test_buffers_of_tcp_are_held_where_the_kernel_can(tmp_path: Path) -> None:
    parents = cgroups.find()
    if not parents.memory or not (parents.memory / "memory.kmem.tcp.limit_in_bytes").exists():
        pytest.skip("TCP's buffers have no account of their own here")
    groups = cgroups.make(parents, f"{cgroups.PREFIX}test-{os.getpid()}", LIMITS)
    try:
        (held,) = [g / "memory.kmem.tcp.limit_in_bytes" for g in groups if "memory" in str(g)]
        assert int(held.read_text()) == LIMITS.memory_bytes // 4
    finally:
        cgroups.remove(groups)
