"""Control groups of one sandbox, where this process may make them (v1 or a delegated v2).

Where it may not, the provider falls back to rlimits and PID 1's watchdog, and says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from trialog.sandbox.provider import Limits

_MOUNT = Path("/sys/fs/cgroup")
PREFIX = "trialog-"
_YOUNG_S = 60.0
_REMOVE_TRIES = 200
_REMOVE_PAUSE_S = 0.005
_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1_000  # the kernel takes no less
_TCP_LIMIT, _TCP_SHARE = "memory.kmem.tcp.limit_in_bytes", 4


@dataclass(frozen=True, slots=True)
class Parents:
    """The groups under which a sandbox gets its own; ``unified`` is v2 and serves both."""

    memory: Path | None = None
    pids: Path | None = None
    unified: Path | None = None
    cpu: Path | None = None
    unified_cpu: bool = False

    @property
    def holds_memory(self) -> bool:
        """Tell whether the kernel will hold the memory limit."""
        return bool(self.memory or self.unified)

    @property
    def holds_pids(self) -> bool:
        """Tell whether the kernel will hold the limit of processes."""
        return bool(self.pids or self.unified)

    @property
    def holds_cpu(self) -> bool:
        """Tell whether the kernel will hold a limit of cores."""
        return bool(self.cpu or (self.unified and self.unified_cpu))


def find(mount: Path = _MOUNT, own: str | None = None) -> Parents:
    """Find groups that this process may make children of; ``own`` is /proc/self/cgroup's text."""
    lines = (Path("/proc/self/cgroup").read_text() if own is None else own).splitlines()
    v1: dict[str, Path] = {}
    unified = None
    for line in lines:
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            v1[name] = mount / name / path.lstrip("/")
        if not names:
            unified = _delegated(mount, path)
    memory, pids, cpu = (_usable(v1.get(name)) for name in ("memory", "pids", "cpu"))
    if memory or pids or unified is None:
        return Parents(memory, pids, None, cpu)
    has_cpu = "cpu" in (unified / "cgroup.subtree_control").read_text().split()
    return Parents(unified=unified, unified_cpu=has_cpu)


def _usable(folder: Path | None) -> Path | None:
    return folder if folder is not None and os.access(folder, os.W_OK) else None


def _delegated(mount: Path, path: str) -> Path | None:
    """A v2 group with processes cannot have children with limits: look at our own, then beside."""
    own = mount / path.lstrip("/")
    for folder in (own, own.parent):
        control = folder / "cgroup.subtree_control"
        if not folder.is_relative_to(mount) or not os.access(folder, os.W_OK):
            continue
        if control.is_file() and {"memory", "pids"} <= set(control.read_text().split()):
            return folder
    return None


def make(parents: Parents, name: str, limits: Limits) -> list[Path]:
    """Make a sandbox's groups with their limits and return them. Raises OSError."""
    made: list[Path] = []
    if parents.unified is not None:
        group = _make(parents.unified / name, made)
        _put(group, "memory.max", limits.memory_bytes)
        _put(group, "pids.max", limits.pids)
        with contextlib.suppress(FileNotFoundError):  # no swap accounting here
            _put(group, "memory.swap.max", 0)
        if limits.cpus is not None and parents.unified_cpu:
            _put(group, "cpu.max", f"{_quota_us(limits.cpus)} {_PERIOD_US}")
    if parents.memory is not None:
        group = _make(parents.memory / name, made)
        _put(group, "memory.limit_in_bytes", limits.memory_bytes)
        with contextlib.suppress(FileNotFoundError):  # no swap accounting here
            _put(group, "memory.memsw.limit_in_bytes", limits.memory_bytes)
        with contextlib.suppress(FileNotFoundError):  # buffers of TCP have an account of their own
            _put(group, _TCP_LIMIT, limits.memory_bytes // _TCP_SHARE)
    if parents.pids is not None:
        group = _make(parents.pids / name, made)
        _put(group, "pids.max", limits.pids)
    if parents.cpu is not None and limits.cpus is not None:
        group = _make(parents.cpu / name, made)
        _put(group, "cpu.cfs_period_us", _PERIOD_US)
        _put(group, "cpu.cfs_quota_us", _quota_us(limits.cpus))
    return made


def remove(groups: list[Path]) -> None:
    """Kill what is left in the groups and remove them; harmless when they are gone.

    A killed process leaves its group a moment after it is reaped, hence the few tries.
    """
    for group in groups:
        for _ in range(_REMOVE_TRIES):
            _kill(group)
            try:
                group.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(_REMOVE_PAUSE_S)
            else:
                break


def sweep(parents: Parents) -> None:
    """Remove empty groups whose sandbox's folder is gone, so that no record names them any more.

    A living sandbox's group is never empty, and one that is being made is young.
    """
    for parent in filter(None, (parents.memory, parents.pids, parents.unified, parents.cpu)):
        for group in parent.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):  # gone, or not empty: the kernel refuses that
                if time.time() - group.stat().st_mtime > _YOUNG_S:
                    group.rmdir()


def _kill(group: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def _make(group: Path, made: list[Path]) -> Path:
    group.mkdir()
    made.append(group)
    return group


def _quota_us(cpus: float) -> int:
    return max(int(cpus * _PERIOD_US), _LEAST_QUOTA_US)


def _put(group: Path, name: str, value: int | str) -> None:
    (group / name).write_text(f"{value}\n")
