"""A seccomp filter, as classic BPF: what no command needs and kernels have been broken through.

A deny list, since agents run arbitrary tools: mounts, namespaces, modules, keyrings (shared by
uid, not by namespace), BPF, io_uring, clocks. Sockets are allowed for Unix, IP and netlink only:
a network namespace does not hold back AF_VSOCK, which reaches a virtual machine's host.
"""

from __future__ import annotations

import errno
import platform
import struct

_ALLOW = 0x7FFF_0000
_ERRNO = 0x0005_0000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NR, _ARCH, _ARG0 = 0, 4, 16
_X32_BIT = 0x4000_0000
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK

# Numbers of the calls refused: on x86-64, on arm64 (None: there is no such call).
_DENIED: dict[str, tuple[int, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
_SOCKET = (41, 198)
_MACHINES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}


def program(machine: str | None = None) -> bytes | None:
    """Return the filter for a machine (default: this one), or None where none is written."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    column, arch = known
    denied = [nr for numbers in _DENIED.values() if (nr := numbers[column]) is not None]
    body = [
        _op(_LOAD, _NR),
        # An x32 call would slip past the numbers below under the same architecture.
        *_refuse_if(_AT_LEAST, _X32_BIT, errno.ENOSYS),
        *(step for nr in denied for step in _refuse_if(_EQUAL, nr, errno.EPERM)),
        _op(_EQUAL, _SOCKET[column], 1, 0),
        _op(_RETURN, _ALLOW),
        _op(_LOAD, _ARG0),
        *(step for family in _FAMILIES for step in _allow_if(family)),
        _op(_RETURN, _ERRNO | errno.EAFNOSUPPORT),
    ]
    # A foreign architecture (32-bit calls) has numbers of its own: nothing of it is let through.
    head = [_op(_LOAD, _ARCH), _op(_EQUAL, arch, 1, 0), _op(_RETURN, _ERRNO | errno.ENOSYS)]
    return b"".join(head + body)


def _op(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, k)


def _refuse_if(test: int, value: int, error: int) -> tuple[bytes, bytes]:
    return _op(test, value, 0, 1), _op(_RETURN, _ERRNO | error)


def _allow_if(value: int) -> tuple[bytes, bytes]:
    return _op(_EQUAL, value, 0, 1), _op(_RETURN, _ALLOW)
