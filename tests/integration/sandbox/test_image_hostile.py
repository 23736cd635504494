"""Commands that attack a sandbox with an image's root: the host, its siblings, its limits."""

from __future__ import annotations

import asyncio
import resource
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.bubblewrap.rooted import RootedSandbox
from trialog.sandbox.errors import FileRefusedError, SnapshotRefusedError
from trialog.sandbox.images import ImageSpec, Recipe
from trialog.sandbox.provider import ExecResult, Limits

MIB = 1 << 20
LIMITS = Limits(memory_bytes=128 * MIB, pids=60, disk_bytes=32 * MIB)
SECRET = "s3cret-of-the-host"


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[BubblewrapProvider]:
    made = BubblewrapProvider(tmp_path / "p", orphan_s=0)
    yield made
    await made.close()
    assert list((tmp_path / "p/run").iterdir()) == []


async def start(provider: BubblewrapProvider, name: str, limits: Limits = LIMITS) -> RootedSandbox:
    recipe = Recipe(Path("/"), None, docker_image="base", images={"base": "host"})
    image = await provider.build(recipe)
    return await provider.start(name, ImageSpec(image.digest, limits))


@pytest.fixture
async def sandbox(provider: BubblewrapProvider) -> RootedSandbox:
    return await start(provider, "hostile")


async def sh(sandbox: RootedSandbox, name: str, script: str, timeout_s: float = 20) -> ExecResult:
    return await sandbox.exec(name, ["sh", "-c", script], timeout_s=timeout_s)


@pytest.mark.parametrize(
    "script",
    [
        "echo x > /usr/x",
        "echo x > /dev/.init",
        "rm /dev/.init",
        "echo x > /dev/x",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo x > /proc/sys/kernel/hostname",
        "echo x > /proc/sysrq-trigger",
        "echo 1 > /proc/sys/user/max_user_namespaces",
        "echo -1000 > /proc/self/oom_score_adj",
        "mount -t tmpfs none /tmp",
        "mount -t proc proc /mnt",
        "mount --bind /etc /mnt",
        "mount -o remount,rw /usr",
        "umount /proc",
        "umount /usr",
        "unshare -U true",
        "unshare -m true",
        "unshare -n true",
        "nsenter -t 1 -m true",
        "cat /proc/1/environ",
        "ls /proc/1/root/",
        "readlink /proc/1/fd/0",
        "cat /proc/1/mem",
        "cat /proc/kcore",
        "mknod /disk b 254 0",
        "mknod /null c 1 3",
        "mknod /whiteout c 0 0",
        "dmesg",
        "hostname other",
        "ip link add dummy0 type dummy",
        "ls /sys/fs/cgroup/memory /sys/kernel",
        "chown 70000 /tmp",
        'python3 -c \'import os; os.setxattr("/etc", "trusted.overlay.opaque", b"y")\'',
    ],
)
async def test_what_must_fail(sandbox: RootedSandbox, script: str) -> None:
    assert (await sh(sandbox, "1", script)).exit_code not in (0, 127)


async def test_the_hosts_files_and_environment_are_not_there(
    provider: BubblewrapProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_TOKEN", SECRET)
    hidden = tmp_path / "secret.txt"
    hidden.write_text(SECRET)
    hidden.chmod(0o644)
    sandbox = await start(provider, "one")
    seen = await sh(sandbox, "1", f"cat {hidden}; cat /etc/shadow /etc/passwd; ls -A / /root /home")
    assert SECRET not in seen.stdout.decode()
    names = {line.split(":")[0] for line in Path("/etc/passwd").read_text().splitlines()}
    ours = (await sh(sandbox, "2", "cut -d: -f1 /etc/passwd")).stdout.decode().split()
    assert set(ours) == {"root", "nobody"} < names
    everywhere = "cat /proc/*/environ /proc/*/cmdline 2>/dev/null; env"
    assert SECRET not in (await sh(sandbox, "3", everywhere)).stdout.decode()
    walk = f"grep -rls {SECRET} /tmp /etc /var /home /root /opt /run /srv /mnt; true"
    assert (await sh(sandbox, "4", walk)).stdout == b""


async def test_chroot_leads_nowhere_else(sandbox: RootedSandbox) -> None:
    """The old way out: a folder kept open beyond a new root, then up."""
    code = (
        "import os\n"
        "os.makedirs('/jail', exist_ok=True); fd = os.open('/', os.O_RDONLY)\n"
        "os.chroot('/jail'); os.fchdir(fd)\n"
        "for _ in range(50): os.chdir('..')\n"
        "os.chroot('.'); print(sorted(os.listdir('/')))\n"
    )
    found = await sandbox.exec("1", ["python3", "-c", code])
    assert b"jail" in found.stdout
    assert b"boot" not in found.stdout


async def test_root_inside_is_nobody_outside(sandbox: RootedSandbox, tmp_path: Path) -> None:
    if "one id only" in str((await BubblewrapProvider(tmp_path / "p").probe()).notes):
        pytest.skip("one id only")
    await sh(sandbox, "1", "sleep 1000 > /dev/null 2>&1 & cp /bin/sh /x; chmod 4755 /x; : > /slept")
    (made,) = (tmp_path / "p").glob("run/*/fs/upper/x")
    assert stat.S_IMODE(made.stat().st_mode) == 0o4755
    assert made.stat().st_uid >= 100_000
    mine = [uid for uid in host_uids("sleep\x001000\x00") if uid >= 100_000]
    assert mine


def host_uids(arguments: str) -> list[int]:
    """Owners of the host's processes with such arguments."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_text() == arguments:
                found.append(entry.stat().st_uid)
        except OSError:
            continue
    return found


async def test_siblings_see_nothing_of_one_another(provider: BubblewrapProvider) -> None:
    one, two = await start(provider, "one"), await start(provider, "two")
    await sh(one, "1", "sleep 4321 > /dev/null 2>&1 & echo mine > /tmp/mine; echo x > /dev/shm/x")
    looks = (
        "cat /proc/*/cmdline | tr '\\0' ' ' | grep -c '[4]321'",
        "cat /tmp/mine",
        "ls /dev/shm/x",
        "kill -0 $(seq 2 40)",
    )
    for at, look in enumerate(looks):
        assert (await sh(two, f"{at}", look)).exit_code != 0
    assert await two.processes() == 0
    await two.kill_all()
    assert await one.processes() == 1


async def test_pid_1_survives_its_children(sandbox: RootedSandbox) -> None:
    signals = "for s in 1 2 3 9 11 13 15 17 19 25; do kill -$s 1; done; kill -9 -1; true"
    await sh(sandbox, "1", signals)
    assert (await sh(sandbox, "2", "echo alive")).stdout == b"alive\n"


async def test_users_of_the_host_cannot_be_asked_for(sandbox: RootedSandbox) -> None:
    for at, user in enumerate(
        ("root:nobody-knows", "-1", "4294967295", "70000", "a\nb", "0:0:0", ":0")
    ):
        assert (await sandbox.exec(f"{at}", ["id"], user=user)).exit_code == 126


async def test_a_passwd_that_is_a_trap(sandbox: RootedSandbox) -> None:
    """Looking a user up neither hangs on a pipe nor reads without a bound."""
    traps = ("mkfifo /etc/passwd", "ln -s /dev/zero /etc/passwd", "mkdir /etc/passwd",
             "truncate -s 30M /etc/passwd", "ln -s passwd /etc/passwd")  # fmt: skip
    for at, trap in enumerate(traps):
        await sh(sandbox, f"{at}", f"rm -rf /etc/passwd; {trap}")
        assert (await sandbox.exec(f"name{at}", ["true"], user="joe")).exit_code == 126
        assert (await sandbox.exec(f"number{at}", ["true"], user=0)).exit_code == 0


async def test_a_fork_bomb_is_held(sandbox: RootedSandbox) -> None:
    bomb = await sh(sandbox, "1", "f() { f | f & }; f; sleep 1000", timeout_s=1.0)
    assert bomb.exit_code != 0
    await sandbox.kill_all()
    assert await sandbox.processes() == 0
    assert (await sh(sandbox, "2", "echo alive")).stdout == b"alive\n"


async def test_a_memory_hog_is_killed(sandbox: RootedSandbox) -> None:
    hog_of = "head -c 400000000 /dev/zero | tail -c 400000000 | { sleep 2; wc -c; }"
    hog = await sh(sandbox, "1", hog_of)
    assert hog.stdout.strip() != b"400000000"
    assert (await sh(sandbox, "2", "echo alive")).stdout == b"alive\n"


async def test_memory_files_are_bounded(sandbox: RootedSandbox) -> None:
    filler = "dd if=/dev/zero of=/dev/shm/fill bs=1M count=400"
    assert (await sh(sandbox, "1", filler)).exit_code != 0


async def test_one_huge_file_is_refused(sandbox: RootedSandbox) -> None:
    assert (await sh(sandbox, "1", "dd if=/dev/zero of=/big bs=1M count=400")).exit_code != 0
    assert (await sh(sandbox, "2", "truncate -s 1T /sparse")).exit_code != 0


@pytest.mark.parametrize("folder", ["/tmp", "/var/lib", "/root/a/b"])
async def test_a_disk_filler_is_ended(sandbox: RootedSandbox, folder: str) -> None:
    fill = "i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > $i; done"
    result = await sh(sandbox, "1", f"mkdir -p {folder}; cd {folder}; {fill}")
    assert result.limit == "disk"


async def test_a_file_of_many_names_takes_its_place_once(sandbox: RootedSandbox) -> None:
    script = "head -c 8000000 /dev/zero > /f; for i in $(seq 20); do ln /f /f$i; done; sleep 1"
    assert (await sh(sandbox, "1", script)).exit_code == 0


async def test_a_disk_filler_between_commands_is_ended(sandbox: RootedSandbox) -> None:
    fill = "i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > /tmp/$i; done"
    await sh(sandbox, "1", f"({fill}) > /dev/null 2>&1 &")
    async with asyncio.timeout(30):
        while await sandbox.processes():
            pass
    assert (await sh(sandbox, "2", "echo alive")).stdout == b"alive\n"


async def test_a_gigabyte_of_output_is_cut_and_not_kept(sandbox: RootedSandbox) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flood = await sh(sandbox, "1", "head -c 1000000000 /dev/zero", timeout_s=60)
    assert (flood.exit_code, flood.truncated, len(flood.stdout)) == (0, True, MIB)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 64 << 10


async def test_ten_thousand_files(provider: BubblewrapProvider, tmp_path: Path) -> None:
    sandbox = await start(provider, "many", Limits(disk_bytes=256 * MIB))
    made = await sh(sandbox, "1", "mkdir /m; cd /m; seq 10000 | xargs touch; ls | wc -l")
    assert made.stdout == b"10000\n"
    saved = await sandbox.save(tmp_path / "state", MIB)
    assert len(saved.entries) == 10_001
    pulled = await sandbox.download("/m", tmp_path / "out", MIB)
    assert len(pulled.files) == 10_000
    recipe = Recipe(Path("/"), None, docker_image="base", images={"base": "host"})
    spec = ImageSpec(await provider.identify(recipe), states=(tmp_path / "state",))
    again = await provider.start("again", spec)
    assert (await sh(again, "1", "ls /m | wc -l")).stdout == b"10000\n"
    await sandbox.upload(tmp_path / "out", "/n")
    assert (await sh(sandbox, "2", "ls /n | wc -l")).stdout == b"10000\n"


async def test_a_share_of_the_processor(provider: BubblewrapProvider) -> None:
    if (await provider.probe()).cpu != "hard":
        pytest.skip("no cgroup for the processor here")
    sandbox = await start(provider, "slow", Limits(cpus=0.25))
    code = (
        "import time\n"
        "end = time.monotonic() + 2\n"
        "while time.monotonic() < end: pass\n"
        "print(time.process_time())\n"
    )
    used = await sandbox.exec("1", ["python3", "-c", code])
    assert 0.1 < float(used.stdout) < 0.9


# What comes out


@pytest.mark.parametrize(
    "plant",
    ["ln -s /etc/passwd /a", "mkfifo /a", "mkdir /d; echo x > /d/a; ln -s d /e; ln -s e/a /a"],
)
async def test_no_trick_is_read_or_brought_out(
    sandbox: RootedSandbox, tmp_path: Path, plant: str
) -> None:
    await sh(sandbox, "1", plant)
    with pytest.raises(FileRefusedError):
        await sandbox.read("/a", 1000)
    pulled = await sandbox.download("/a", tmp_path / "out", MIB)
    assert (pulled.files, len(pulled.refused)) == ((), 1)
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(FileRefusedError):
        (await sandbox.save(tmp_path / "state", MIB)).read("a")


async def test_a_link_on_the_way_is_not_followed(sandbox: RootedSandbox, tmp_path: Path) -> None:
    await sh(sandbox, "1", "mkdir /d; echo x > /d/a; ln -s /d /e; mkdir /w; ln -s /etc /w/l")
    for path in ("/e/a", "/e"):
        with pytest.raises(FileRefusedError):
            await sandbox.read(path, 100)
    assert (await sandbox.download("/e", tmp_path / "out", MIB)).files == ()
    (tmp_path / "in/l").mkdir(parents=True)
    (tmp_path / "in/l/passwd").write_text("owned")
    with pytest.raises(FileRefusedError):
        await sandbox.upload(tmp_path / "in", "/w")
    assert b"owned" not in (await sh(sandbox, "2", "cat /etc/passwd")).stdout


async def test_a_race_of_links_wins_nothing(sandbox: RootedSandbox, tmp_path: Path) -> None:
    race = (
        "mkdir /w; while :; do mkdir /w/d; echo own > /w/d/passwd; rm -r /w/d; ln -s /etc /w/d;"
        " rm /w/d; done > /dev/null 2>&1 &"
    )
    await sh(sandbox, "1", race)
    seen: set[bytes] = set()
    for at in range(150):
        out = tmp_path / f"out{at}"
        await sandbox.download("/w", out, MIB)
        seen |= {path.read_bytes() for path in out.rglob("*") if path.is_file()}
        assert not any(path.is_symlink() for path in out.rglob("*"))
    assert seen <= {b"", b"own\n"}


async def test_names_that_are_traps(sandbox: RootedSandbox, tmp_path: Path) -> None:
    code = (
        "import os\n"
        "os.mkdir('/n')\n"
        "for name in (b'\\xff\\xfe', b'new\\nline', b'-rf', b'..x', b' ', b'x' * 255):\n"
        "    open(b'/n/' + name, 'w').write('x')\n"
    )
    assert (await sandbox.exec("1", ["python3", "-c", code])).exit_code == 0
    pulled = await sandbox.download("/n", tmp_path / "out", MIB)
    assert sorted(pulled.files) == sorted(["new\nline", "-rf", "..x", " ", "x" * 255])
    assert [why for _, why in pulled.refused] == ["its name is not UTF-8"]
    saved = await sandbox.save(tmp_path / "state", MIB)
    assert len(saved.entries) == 7
    assert len(saved.digest()) == 64


async def test_bottomless_folders_are_refused_and_removed(
    sandbox: RootedSandbox, tmp_path: Path
) -> None:
    code = "import os\nos.chdir('/tmp')\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')\n"
    await sandbox.exec("1", ["python3", "-c", code])
    with pytest.raises(SnapshotRefusedError):
        await sandbox.save(tmp_path / "state", MIB)
    pulled = await sandbox.download("/tmp", tmp_path / "out", MIB)
    assert pulled.refused
    assert not (tmp_path / "state").exists()


async def test_attributes_of_the_overlay_are_not_the_sandboxs(
    provider: BubblewrapProvider, sandbox: RootedSandbox, tmp_path: Path
) -> None:
    """A kernel refuses them, or keeps them under another name: nothing is hidden by them."""
    code = "import os; os.mkdir('/etc/sub'); os.setxattr('/etc', 'user.overlay.opaque', b'y')"
    await sandbox.exec("1", ["python3", "-c", code])
    saved = await sandbox.save(tmp_path / "state", MIB)
    assert "deleted" not in {entry.kind for entry in saved.entries}
    spec = ImageSpec(sandbox.image.digest, states=(tmp_path / "state",))
    again = await provider.start("again", spec)
    assert (await sh(again, "1", "ls /etc/passwd /etc/sub")).exit_code == 0


async def test_a_shut_root_is_saved(sandbox: RootedSandbox, tmp_path: Path) -> None:
    await sh(sandbox, "1", "echo x > /x; chmod 0 /")
    saved = await sandbox.save(tmp_path / "state", MIB)
    assert saved.read("x") == b"x\n"


async def test_shut_folders_are_saved(sandbox: RootedSandbox, tmp_path: Path) -> None:
    await sh(sandbox, "1", "mkdir /dark; echo in > /dark/in; chmod 0 /dark/in; chmod 0 /dark")
    saved = await sandbox.save(tmp_path / "state", MIB)
    assert saved.read("dark/in") == b"in\n"
    assert {e.path: e.mode for e in saved.entries} == {"dark": 0, "dark/in": 0}


async def test_foreign_socket_families_are_refused(sandbox: RootedSandbox) -> None:
    code = (
        "import socket\n"
        "for family in (40, 38, 17):\n"  # AF_VSOCK, AF_ALG, AF_PACKET
        "    try: socket.socket(family, socket.SOCK_STREAM)\n"
        "    except OSError as error: print(error.errno)\n"
        "socket.create_server(('127.0.0.1', 8080)).close()\n"
        "print(socket.gethostbyname('localhost'))\n"
    )
    found = await sandbox.exec("1", ["python3", "-c", code])
    assert found.stdout.split() == [b"97"] * 3 + [b"127.0.0.1"], found
