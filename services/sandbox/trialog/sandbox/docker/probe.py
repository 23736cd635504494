"""What a daemon can hold, found by starting a sandbox from an empty image."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from trialog.sandbox.docker.container import INIT, INSIDE
from trialog.sandbox.errors import ProviderUnavailableError, SandboxError, WorldError
from trialog.sandbox.images import ImageProvider, ImageSpec, Recipe
from trialog.sandbox.provider import Capabilities, Enforcement

_USAGE = 125  # what PID 1's binary says when it is called without arguments
_TIMEOUT_S = 30.0


async def try_out(provider: ImageProvider, sandbox_id: str) -> None:
    """Build an image of nothing, start it, run the one program in it, and remove it.

    Raises ProviderUnavailableError.
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            context = Path(folder)
            (context / "Dockerfile").write_text("FROM scratch\nCOPY empty /empty\n")
            (context / "empty").touch(0o644)
            image = await provider.build(Recipe(context))
        sandbox = await provider.start(sandbox_id, ImageSpec(image.digest))
        try:
            ended = await sandbox.exec("probe", [f"{INSIDE}/{INIT}"], timeout_s=_TIMEOUT_S)
        finally:
            await sandbox.destroy()
    except ProviderUnavailableError:
        raise
    except (SandboxError, WorldError, OSError) as error:
        raise ProviderUnavailableError(f"the Docker daemon starts no sandbox: {error}") from error
    if ended.exit_code != _USAGE:
        said = ended.stderr.decode("utf-8", "replace").strip()
        raise ProviderUnavailableError(
            f"the self-test's command ended with {ended.exit_code} in place of {_USAGE}: {said}"
        )


def capabilities(info: dict[str, Any], reads_upper: bool) -> Capabilities:
    """Return what is held, by what the daemon says of itself (GET /info)."""
    notes = [
        f"Docker {info['ServerVersion']}, storage driver {info['Driver']}",
        "disk: one file by rlimit, their sum by a watchdog",
        "network public: the host's own addresses can be reached, other sandboxes cannot",
    ]
    if not any("name=userns" in option for option in info.get("SecurityOptions") or ()):
        notes.append("uid 0 inside is uid 0 outside, without MKNOD, NET_RAW and new privileges")
    if not reads_upper:
        notes.append(
            "this user may not read the daemon's layers: states are saved through its interface, "
            "which is slower"
        )
    return Capabilities(
        provider="docker",
        memory=_held(info, "MemoryLimit", "SwapLimit"),
        pids=_held(info, "PidsLimit"),
        cpu=_held(info, "CpuCfsPeriod", "CpuCfsQuota"),
        disk=Enforcement.POLLED,
        network=Enforcement.HARD,
        notes=tuple(notes),
    )


def _held(info: dict[str, Any], *controls: str) -> Enforcement:
    return Enforcement.HARD if all(info.get(name) for name in controls) else Enforcement.NONE
