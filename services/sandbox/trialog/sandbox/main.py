"""``python -m trialog.sandbox``: the composition root of the sandbox."""

from __future__ import annotations

import asyncio

from trialog.sandbox import code
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.docker.provider import DockerProvider
from trialog.sandbox.handlers import Handlers
from trialog.sandbox.images import ImageProvider
from trialog.sandbox.null import NullProvider
from trialog.sandbox.provider import Capabilities
from trialog.sandbox.reference_trials import ReferenceTrials
from trialog.sandbox.settings import SandboxSettings
from trialog.sandbox.trials.handling import TaskTrials
from trialog.sandbox.trials.host import Host
from trialog.sandbox.trials.scratch import Scratch
from trialog.spine import service, telemetry
from trialog.spine.service import Context
from trialog.spine.tasks.store import TaskStore
from trialog.spine.worker import work

_LEAST_PAUSE_S = 1.0


async def run(context: Context) -> None:
    """Prove that isolation works, clear what a dead worker left, then work until told to stop."""
    settings = context.settings
    assert isinstance(settings, SandboxSettings)
    bubblewrap = BubblewrapProvider(settings.sandbox_dir, orphan_s=settings.orphan_s)
    scratch = Scratch(settings.sandbox_dir / "scratch")
    images: dict[str, ImageProvider] = {"bubblewrap": bubblewrap, **_daemons(settings)}
    try:
        for provider in images.values():
            _tell(await provider.probe(), await provider.sweep([]))
        scratch.sweep()
        reference = ReferenceTrials(
            {"bubblewrap": bubblewrap, "null": NullProvider()}, context.blobs
        )
        host = Host(
            images,
            context.blobs,
            TaskStore(settings.sandbox_dir / "tasks"),
            scratch,
            settings.agent_modules,
            settings.image_roots,
        )
        handlers = Handlers(reference, TaskTrials(host))
        sweeping = asyncio.create_task(_sweep_on(images, settings.orphan_s), name="sweep")
        try:
            await work(context, {"world": handlers.on_world_requested, "trial": handlers.on_trial})
        finally:
            sweeping.cancel()
    finally:
        scratch.close()
        for provider in images.values():
            await provider.close()


def _daemons(settings: SandboxSettings) -> dict[str, ImageProvider]:
    """Return the providers that need a daemon: those whose daemon is named."""
    if not settings.docker_host:
        return {}
    root, address = settings.sandbox_dir / "docker", settings.docker_host
    return {"docker": DockerProvider(root, address=address, orphan_ttl_s=settings.orphan_s)}


async def _sweep_on(images: dict[str, ImageProvider], orphan_s: float) -> None:
    """Remove what dead workers left once its time is over, as long as this worker lives."""
    while True:
        await asyncio.sleep(max(_LEAST_PAUSE_S, orphan_s / 2))
        for name, provider in images.items():
            try:
                left = await provider.sweep([])
            except Exception as error:  # the next time may go well, and trials go on meanwhile
                telemetry.logger().warning("sweeping failed", provider=name, exc_info=error)
            else:
                if left:
                    telemetry.logger().info("sandboxes removed", provider=name, removed=left)


def _tell(found: Capabilities, left: list[str]) -> None:
    telemetry.logger().info(
        "isolation works",
        provider=found.provider,
        memory=found.memory,
        pids=found.pids,
        disk=found.disk,
        network=found.network,
        notes=found.notes,
        removed=left,
    )


def main() -> None:
    """Start the sandbox."""
    service.serve("sandbox", SandboxSettings, run, code.versions)
