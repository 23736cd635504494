"""What a sandbox's container is made with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trialog.sandbox.images import ImageSpec

# Below /dev, which is not of the image: so the mount point is no change that a state would hold.
INSIDE = "/dev/.trialog"
HANDOVER = "handover"
INIT = "init"
LABEL = "org.trialog."
# Of Docker's default capabilities these two are taken: devices and raw packets are no task's need.
_DROPPED = ("MKNOD", "NET_RAW")
# For PID 1 alone, which takes it from all that it starts: to see what others have open.
_ADDED = ("SYS_PTRACE",)
# What the daemon makes read-only of itself; naming one path replaces its whole list.
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
# With cgroup v1 the folder of the controllers can be a writable tmpfs, beside which no limit holds.
_CGROUPS = "/sys/fs/cgroup"
_LISTEN_FD = 3
_KEPT_OUTPUT_BYTES = 32 << 20
_MIB = 1 << 20
_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a container is: the provider's folder (as a digest), the sandbox's id, its nonce."""

    root: str
    sandbox_id: str
    nonce: str

    @property
    def name(self) -> str:
        """The container's name: one sandbox id is one container of one provider's folder."""
        return f"trialog-{self.root}-{self.sandbox_id}"

    def labels(self, image: str, orphan_ttl_s: float) -> dict[str, str]:
        """Return the labels by which containers are found and explained."""
        return {
            LABEL + "root": self.root,
            LABEL + "sandbox": self.sandbox_id,
            LABEL + "incarnation": self.nonce,
            LABEL + "image": image,
            LABEL + "outlives-worker-s": str(orphan_ttl_s),
        }


def settings(
    owner: Owner, spec: ImageSpec, image_tag: str, folder: Path, network: str, orphan_ttl_s: float
) -> dict[str, Any]:
    """Return the daemon's settings of one container.

    Its PID 1 is ours: the daemon only starts and removes it. ``folder`` holds the binary and the
    socket of the handover, read-only inside. The image's entry point and health check are not run.
    """
    limits = spec.limits
    inside_init = f"{INSIDE}/{INIT}"
    init = [inside_init, str(_LISTEN_FD), str(int(orphan_ttl_s * 1000)), str(_KEPT_OUTPUT_BYTES)]
    launch = [inside_init, "launch", "-f", str(limits.disk_bytes), "--"]
    return {
        "Image": image_tag,
        "Hostname": "sandbox",
        "User": "0:0",
        "WorkingDir": "/",
        "Entrypoint": [inside_init, "handed", f"{INSIDE}/{HANDOVER}"],
        "Cmd": [*launch, *init, "0", "0", owner.nonce],
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": owner.labels(spec.image, orphan_ttl_s),
        "HostConfig": {
            "Mounts": [
                {"Type": "bind", "Source": str(folder), "Target": INSIDE, "ReadOnly": True},
            ],
            "NetworkMode": network,
            "AutoRemove": True,
            "LogConfig": {"Type": "none"},
            "CapDrop": list(_DROPPED),
            "CapAdd": list(_ADDED),
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyPaths": [*_READ_ONLY, _CGROUPS],
            "Memory": limits.memory_bytes,
            "MemorySwap": limits.memory_bytes,
            "PidsLimit": limits.pids,
            "ShmSize": max(limits.memory_bytes // 4, _MIB),
            "IpcMode": "private",
            **_cpus(limits.cpus),
        },
    }


def _cpus(cpus: float | None) -> dict[str, int]:
    if cpus is None:
        return {}
    return {"CpuPeriod": _PERIOD_US, "CpuQuota": max(int(cpus * _PERIOD_US), 1000)}
