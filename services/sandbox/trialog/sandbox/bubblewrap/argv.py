"""The bubblewrap command line of one sandbox."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trialog.sandbox.provider import WORLD, Limits

INIT_INSIDE = "/run/.init"
HOST_FOLDERS = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things are on the host.

    ``upper`` and ``work`` are the overlay's, on one filesystem that is not itself an overlay;
    ``etc`` is the minimal /etc made by the provider.
    """

    bwrap: Path
    init: Path
    world: Path
    upper: Path
    work: Path
    etc: Path


@dataclass(frozen=True, slots=True)
class InitArguments:
    """What PID 1 is started with; times in ms, ``watch_*`` 0 where a cgroup holds the limit."""

    listen_fd: int
    orphan_ms: int
    keep_bytes: int
    watch_bytes: int
    watch_pids: int
    nonce: str

    def words(self) -> list[str]:
        """Return PID 1's arguments."""
        numbers = (
            self.listen_fd,
            self.orphan_ms,
            self.keep_bytes,
            self.watch_bytes,
            self.watch_pids,
        )
        return [*map(str, numbers), self.nonce]


def build(
    layout: Layout,
    limits: Limits,
    init: InitArguments,
    *,
    info_fd: int,
    seccomp_fd: int | None,
    die_with_parent: bool,
) -> list[str]:
    """Return argv for one sandbox: hardened, with the host's tools read-only (trusted mode).

    The host's ``/`` is never bound: as root, uid 0 inside is uid 0 outside, and every file of
    root would be readable. For the same reason /proc is remounted read-only: sysctls are guarded
    by the uid alone, and bubblewrap covers /proc/sys only where the folder itself looks writable.
    """
    words = [str(layout.bwrap), "--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0"]
    words += ["--disable-userns", "--hostname", "world", "--new-session", "--as-pid-1"]
    words += ["--cap-drop", "ALL", "--clearenv"]
    words += ["--die-with-parent"] if die_with_parent else []
    words += host_tools()
    words += ["--ro-bind", str(layout.etc), "/etc"]
    words += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    words += ["--overlay-src", str(layout.world)]
    words += ["--overlay", str(layout.upper), str(layout.work), WORLD]
    words += ["--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]
    words += sized("/tmp", limits.memory_bytes // 2)  # noqa: S108 - the sandbox's own
    words += sized("/dev/shm", limits.memory_bytes // 4)  # noqa: S108 - the sandbox's own
    words += ["--ro-bind", str(layout.init), INIT_INSIDE]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORLD]
    words += ["--info-fd", str(info_fd)]
    words += ["--seccomp", str(seccomp_fd)] if seccomp_fd is not None else []
    return [*words, "--", INIT_INSIDE, *init.words()]


def host_tools(*, links: bool = True) -> list[str]:
    """Bind /usr, and the folders beside it as the host has them: links or folders.

    Without ``links`` the root has those already.
    """
    words = ["--ro-bind", "/usr", "/usr"]
    for folder in HOST_FOLDERS:
        path = Path(folder)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), folder] if links else []
        elif path.is_dir():
            words += ["--ro-bind", folder, folder]
    return words


def sized(folder: str, size_bytes: int) -> list[str]:
    """Return a tmpfs of a size: without one, each could take half of the machine's memory."""
    return ["--perms", "1777", "--size", str(max(size_bytes, _MIB)), "--tmpfs", folder]


def make_etc(folder: Path) -> None:
    """Fill a folder as the sandbox's /etc: a few names, no secret of the host."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "passwd": f"root:x:0:0:root:{WORLD}:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        "group": "root:x:0:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    for name, text in texts.items():
        _replace(folder / name, text.encode())
    # The loader's cache is public and speeds up every start of a program.
    if os.access("/etc/ld.so.cache", os.R_OK):
        _replace(folder / "ld.so.cache", Path("/etc/ld.so.cache").read_bytes())
    (folder / "alternatives").mkdir(exist_ok=True)


def _replace(path: Path, data: bytes) -> None:
    if path.exists() and path.read_bytes() == data:
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(data)
    aside.replace(path)
