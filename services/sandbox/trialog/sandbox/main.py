"""``python -m trialog.sandbox``: the composition root of the sandbox."""

from __future__ import annotations

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
from trialog.spine import service, telemetry
from trialog.spine.service import Context
from trialog.spine.tasks.store import TaskStore
from trialog.spine.worker import work


async def run(context: Context) -> None:
    """Prove that isolation works, clear what a dead worker left, then work until told to stop."""
    settings = context.settings
    assert isinstance(settings, SandboxSettings)
    bubblewrap = BubblewrapProvider(settings.sandbox_dir, orphan_s=settings.orphan_s)
    images: dict[str, ImageProvider] = {"bubblewrap": bubblewrap, **_daemons(settings)}
    try:
        for provider in images.values():
            _tell(await provider.probe(), await provider.sweep([]))
        reference = ReferenceTrials(
            {"bubblewrap": bubblewrap, "null": NullProvider()}, context.blobs
        )
        handlers = Handlers(reference, TaskTrials(_host(settings, context, images)))
        await work(context, {"world": handlers.on_world_requested, "trial": handlers.on_trial})
    finally:
        for provider in images.values():
            await provider.close()


def _daemons(settings: SandboxSettings) -> dict[str, ImageProvider]:
    """Return the providers that need a daemon: those whose daemon is named."""
    if not settings.docker_host:
        return {}
    root, address = settings.sandbox_dir / "docker", settings.docker_host
    return {"docker": DockerProvider(root, address=address, orphan_ttl_s=settings.orphan_s)}


def _host(settings: SandboxSettings, context: Context, images: dict[str, ImageProvider]) -> Host:
    root = settings.sandbox_dir
    return Host(
        images,
        context.blobs,
        TaskStore(root / "tasks"),
        root / "scratch",
        settings.agent_modules,
        settings.image_roots,
    )


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
