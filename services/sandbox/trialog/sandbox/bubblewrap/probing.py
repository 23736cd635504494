"""The provider's self-test: sandboxes of both kinds are started, and looked around in."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trialog.sandbox.bubblewrap.tools import mend
from trialog.sandbox.errors import ImageError, ProviderUnavailableError, SandboxError
from trialog.sandbox.images import ImageSpec, Recipe
from trialog.sandbox.provider import ExecResult, SandboxSpec
from trialog.sandbox.worlds.archive import pack

if TYPE_CHECKING:
    from trialog.sandbox.bubblewrap.provider import BubblewrapProvider

_RECIPE = Recipe(Path("/"), None, docker_image="probe", images={"probe": "host"})
_LOOK = "echo x > probe.txt && cat /proc/net/dev"


async def world(provider: BubblewrapProvider, root: Path) -> None:
    """Look around in a sandbox over a world. Raises ProviderUnavailableError (fail closed)."""
    packed = pack({"probe.txt": b"probe\n"})
    digest = hashlib.sha256(packed).hexdigest()
    try:
        await provider.prepare(digest, packed)
        sandbox = await provider.create(f"probe-{os.getpid()}", SandboxSpec(digest))
    except (OSError, SandboxError) as error:
        if isinstance(error, ProviderUnavailableError):
            raise
        raise ProviderUnavailableError(mend(str(error), root)) from error
    try:
        script = f"cat probe.txt && {_LOOK}"
        seen = await sandbox.exec("probe", ["sh", "-c", script], timeout_s=20)
    finally:
        await sandbox.destroy()
    if problem := _problem(seen, "probe"):
        raise ProviderUnavailableError(problem)


async def image(provider: BubblewrapProvider, base: int | None) -> str:
    """Look around in a sandbox from an image; return why there can be none here, empty if it can.

    A host on which only worlds can be had is still of use: tasks are refused there.
    """
    try:
        made = await provider.build(_RECIPE)
        sandbox = await provider.start(f"probe-image-{os.getpid()}", ImageSpec(made.digest))
        try:
            script = f"tr -s ' ' '_' < /proc/self/uid_map && {_LOOK}"
            seen = await sandbox.exec("probe", ["sh", "-c", script], timeout_s=20)
        finally:
            await sandbox.destroy()
    except (OSError, SandboxError, ImageError) as error:
        return str(error)
    return _problem(seen, "_0_" if base is None else f"_0_{base}_")


def _problem(seen: ExecResult, first: str) -> str:
    """Say what is wrong with what a self-test saw, empty when nothing is."""
    lines = seen.stdout.decode("utf-8", "replace").splitlines()
    devices = [line.split(":")[0].strip() for line in lines if ":" in line]
    if seen.exit_code == 0 and lines and lines[0].startswith(first) and devices == ["lo"]:
        return ""
    said = seen.stderr.decode("utf-8", "replace").strip()
    return (
        f"the self-test saw {lines[:1]} and network devices {devices} "
        f"(exit code {seen.exit_code}): {said}"
    )
