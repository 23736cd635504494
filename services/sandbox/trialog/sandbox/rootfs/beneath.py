"""Opening paths below a folder that somebody else filled: nothing leads out of it."""

from __future__ import annotations

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_OPENAT2 = 437  # the same on every architecture
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH, _IN_ROOT = 0x02, 0x04, 0x08, 0x10
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(top: int, path: str, *, follow: bool) -> int:
    """Open a folder below an open one (``""``: itself).

    With ``follow`` symlinks count as if the open folder were the root; else one on the way is
    refused. Raises OSError.
    """
    resolve = _IN_ROOT | _NO_MAGICLINKS if follow else _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS
    how = struct.pack("=QQQ", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, resolve)
    fd = _libc.syscall(_OPENAT2, top, os.fsencode(path or "."), how, len(how))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return fd


def make_folder(top: int, path: str, owner: int | None, *, follow: bool) -> int:
    """Open a folder as ``open_folder`` does; what is missing of it is made, and given an owner."""
    try:
        return open_folder(top, path, follow=follow)
    except FileNotFoundError:
        parent, _, name = path.rpartition("/")
        above = make_folder(top, parent, owner, follow=follow)
        try:
            os.mkdir(name, 0o755, dir_fd=above)
            if owner is not None:
                os.chown(name, owner, owner, dir_fd=above, follow_symlinks=False)
        except FileExistsError:  # a symlink that leads nowhere
            raise NotADirectoryError(20, "is not a folder", path) from None
        finally:
            os.close(above)
        return open_folder(top, path, follow=follow)
