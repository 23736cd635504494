"""Becomes another program that dies with the stack; run as a script, standard library only.

    python -I -S launch.py PARENT_PID DEATH_SIGNAL IDENTITY PROGRAM ARGUMENT...

A small program between fork and exec is safer than `preexec_fn` (which runs Python in a forked
copy of a threaded process) and asks for no `setpriv` or `unshare` on the machine. IDENTITY is
`same`, `userns:UID` (that user in a user namespace of its own, for programs that refuse root) or
`UID:GID`. The death signal is set last, since a change of identity clears it.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000


def _libc_call(function: str, *arguments: int) -> None:
    """Call a libc function that answers -1 with errno on failure; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def enter_user_namespace(inside: int) -> None:
    """Become the user `inside` a new user namespace; files stay those of the user outside."""
    uid, gid = os.geteuid(), os.getegid()
    _libc_call("unshare", _CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{inside} {uid} 1")
    _write("/proc/self/gid_map", f"{inside} {gid} 1")


def become(uid: int, gid: int) -> None:
    """Drop root for good."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def die_with(parent_pid: int, death_signal: int) -> None:
    """Ask the kernel for `death_signal` once the spawning thread is gone (Linux)."""
    if sys.platform != "linux":
        return  # the watchdog alone cleans up there
    _libc_call("prctl", _PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit("launch: the stack is gone already")


def main(arguments: list[str]) -> None:
    """Take on the identity and the death signal, then become the program."""
    parent_pid, death_signal, identity, *command = arguments
    if identity != "same":
        first, _, second = identity.partition(":")
        if first == "userns":
            enter_user_namespace(int(second))
        else:
            become(int(first), int(second))
    # Python ignores these two, and what is ignored stays ignored across exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    die_with(int(parent_pid), int(death_signal))
    os.execvp(command[0], command)  # noqa: S606 - becoming the program is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
