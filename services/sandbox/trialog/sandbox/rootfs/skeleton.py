"""Layers that no image brings: places for what is mounted, the few names that every system has."""

from __future__ import annotations

import os
from pathlib import Path

from trialog.sandbox.bubblewrap.argv import HOST_FOLDERS

# The names that a sandbox without a network has, with every provider.
NAMES = {
    "etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost\n",
    "etc/hostname": "sandbox\n",
    "etc/resolv.conf": "",
}
_FOLDERS = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var", "var/tmp")
_MODES = {
    "root": 0o700,
    "tmp": 0o1777,
    "var/tmp": 0o1777,
    "etc/shadow": 0o640,
    "etc/gshadow": 0o640,
}
_HOST_MODE = {
    "etc/passwd": (
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
    ),
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/shadow": "root:*:20000:0:99999:7:::\nnobody:*:20000:0:99999:7:::\n",
    "etc/gshadow": "root:*::\nnogroup:*::\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
    "etc/shells": "/bin/sh\n/bin/bash\n",
    "etc/environment": "",
    "etc/login.defs": "UID_MIN 1000\nGID_MIN 1000\nUSERGROUPS_ENAB yes\nUMASK 022\n",
    # su by root needs no password; nobody else's would be accepted.
    "etc/pam.d/other": (
        "auth sufficient pam_rootok.so\nauth required pam_deny.so\naccount required pam_permit.so\n"
        "password required pam_deny.so\nsession required pam_permit.so\n"
    ),
}
_PUBLIC = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/os-release", "/etc/debian_version")
_LINKED = Path("/etc/alternatives")


def bottom(folder: Path, base: int | None) -> None:
    """Fill the lowest layer of every image."""
    for name in _FOLDERS:
        (folder / name).mkdir()
    _give(folder, base)


def top(folder: Path, base: int | None) -> None:
    """Fill the layer over every image: names that a sandbox's own network has, whatever the image
    brings (exported root filesystems bring empty files)."""
    for name, text in NAMES.items():
        _write(folder, name, text)
    _give(folder, base)


def host(folder: Path, base: int | None) -> None:
    """Fill the layer of the ``host`` image: links as the host has them, and a small /etc.

    Of the host's /etc only what is public and programs need; nothing that names its users.
    """
    for name in HOST_FOLDERS:
        path = Path(name)
        if path.is_symlink():
            (folder / name.lstrip("/")).symlink_to(path.readlink())
        elif path.is_dir():
            (folder / name.lstrip("/")).mkdir()
    for name in ("usr", "home", "opt", "srv", "mnt", "var/lib", "var/log", "var/cache"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, text in _HOST_MODE.items():
        _write(folder, name, text)
    for name in _PUBLIC:
        if os.access(name, os.R_OK):
            (folder / name.lstrip("/")).write_bytes(Path(name).read_bytes())
    if _LINKED.is_dir():
        inside = folder / str(_LINKED).lstrip("/")
        inside.mkdir()
        for link in _LINKED.iterdir():
            if link.is_symlink():
                (inside / link.name).symlink_to(link.readlink())
    _give(folder, base)


def _write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _give(folder: Path, base: int | None) -> None:
    """Make all of it root's inside, with modes that owe nothing to our own umask."""
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        if not path.is_symlink():
            plain = 0o755 if path.is_dir() else 0o644
            path.chmod(_MODES.get(str(path.relative_to(folder)), plain))
        if base is not None:
            os.chown(path, base, base, follow_symlinks=False)
