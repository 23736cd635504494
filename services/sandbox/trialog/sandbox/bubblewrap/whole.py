"""The bubblewrap command line of a sandbox with an image's root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trialog.sandbox.bubblewrap.argv import InitArguments, host_tools, sized
from trialog.sandbox.bubblewrap.tools import Tools
from trialog.sandbox.provider import Limits
from trialog.sandbox.rootfs.unpack import IDS

INIT_INSIDE = "/dev/.init"
STAGE = "/tmp"  # noqa: S108 - as init/init.h has it
# Docker's default, without devices and raw packets; they count in the sandbox's namespace only.
# With the last one PID 1 sees open files of other users; it hands that on to nobody.
CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
)
_OPEN_FILES = 65_536


@dataclass(frozen=True, slots=True)
class Whole:
    """Where a root's parts are on the host: ``layers`` from the top down, ``overlay`` the folder of
    upper and work. ``host`` asks for the host's programs over it, read-only (trusted mode)."""

    layers: Sequence[Path]
    overlay: Path
    host: bool


@dataclass(frozen=True, slots=True)
class Command:
    """What the launcher is given before bubblewrap's own words, those, and the environment."""

    launch: list[str]
    words: list[str]
    env: dict[str, str]


def build(
    tools: Tools,
    whole: Whole,
    limits: Limits,
    init: InitArguments,
    *,
    info_fd: int,
    seccomp_fd: int | None,
    die_with_parent: bool,
) -> Command:
    """Return the command line of one sandbox.

    With a range of ids, bubblewrap runs without any power outside and finds its folders, by number,
    where the launcher shows them to it; in a namespace of one id it makes that itself.
    """
    shown = [tools.bwrap, tools.libraries or tools.init, tools.init, whole.overlay, *whole.layers]
    places = shown
    launch = ["-n", str(_OPEN_FILES)]
    env: dict[str, str] = {}
    names = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    if tools.base is not None:
        launch += ["-u", f"{tools.base}:{IDS}"]
        for path in shown:
            launch += ["-s", str(path)]
        places = [Path(STAGE) / str(at) for at in range(len(shown))]
        env["LD_LIBRARY_PATH"] = str(places[1])
        names += ["--unshare-cgroup-try"]
    else:
        names += ["--unshare-cgroup-try", "--unshare-user", "--uid", "0", "--gid", "0"]
        names += ["--disable-userns"]
    bwrap, _, pid_1, overlay, *layers = places
    words = [str(bwrap), *names, "--hostname", "sandbox", "--new-session", "--as-pid-1"]
    words += ["--cap-drop", "ALL", *_capabilities(tools), "--clearenv"]
    words += ["--die-with-parent"] if die_with_parent else []
    for layer in reversed(layers):
        words += ["--overlay-src", str(layer)]
    words += ["--overlay", str(overlay / "upper"), str(overlay / "work"), "/"]
    words += host_tools(links=False) if whole.host else []
    words += ["--dev", "/dev", "--ro-bind", str(pid_1), INIT_INSIDE]
    words += sized("/dev/shm", limits.memory_bytes // 4)  # noqa: S108 - the sandbox's own
    words += ["--remount-ro", "/dev", "--proc", "/proc", "--remount-ro", "/proc", "--chdir", "/"]
    words += ["--info-fd", str(info_fd)]
    words += ["--seccomp", str(seccomp_fd)] if seccomp_fd is not None else []
    return Command(launch, [*words, "--", INIT_INSIDE, *init.words()], env)


def _capabilities(tools: Tools) -> list[str]:
    """In a range, root inside is nobody outside. Started as root without a range, uid 0 would be
    the host's: it gets nothing."""
    if tools.base is None and tools.runs_as_root:
        return []
    return [word for name in CAPABILITIES for word in ("--cap-add", name)]
