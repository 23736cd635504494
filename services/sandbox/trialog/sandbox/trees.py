"""Removing folders that an adversary filled: deep, unreadable, with any names."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

# The fresh name is one that the adversary used already.
_TAKEN = (errno.EEXIST, errno.ENOTDIR, errno.ENOTEMPTY)


def remove_tree(path: Path) -> None:
    """Remove a folder and all below it; harmless when it is gone.

    Nothing may be running that changes it. Works on folders of mode 000 (overlay's work/work) and
    of any depth: each subfolder is moved up to the top before it is emptied, so neither a path nor
    the stack grows with the depth (shutil.rmtree and os.walk fail there). Follows no symlink.
    """
    if path.is_symlink():
        path.unlink()
        return
    try:
        path.chmod(0o700)
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()


def _empty(top: int) -> None:
    count = 0
    while names := os.listdir(top):
        for name in names:
            if not _is_dir(name, top):
                _unlink(name, top)
                continue
            folder = _enter(name, top)
            try:
                count = _flatten(folder, top, count)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _flatten(folder: int, top: int, count: int) -> int:
    """Unlink a folder's files and move its subfolders to the top under fresh names."""
    for name in os.listdir(folder):
        if not _is_dir(name, folder):
            _unlink(name, folder)
            continue
        # Moving a folder rewrites its "..", which takes write permission on it.
        os.chmod(name, 0o700, dir_fd=folder)
        while True:
            count += 1
            try:
                os.rename(name, f".removed-{count}", src_dir_fd=folder, dst_dir_fd=top)
                break
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
    return count


def _is_dir(name: str, folder: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _enter(name: str, folder: int) -> int:
    os.chmod(name, 0o700, dir_fd=folder)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)


def _unlink(name: str, folder: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
