"""``python -m trialog.sandbox``: the composition root of the sandbox."""

from __future__ import annotations

from trialog.sandbox import code
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.handlers import Handlers
from trialog.sandbox.null import NullProvider
from trialog.sandbox.settings import SandboxSettings
from trialog.spine import service, telemetry
from trialog.spine.service import Context
from trialog.spine.worker import work


async def run(context: Context) -> None:
    """Prove that isolation works, clear what a dead worker left, then work until told to stop."""
    settings = context.settings
    assert isinstance(settings, SandboxSettings)
    bubblewrap = BubblewrapProvider(settings.sandbox_dir)
    try:
        found = await bubblewrap.probe()
        left = await bubblewrap.sweep([])
        telemetry.logger().info(
            "isolation works",
            memory=found.memory,
            pids=found.pids,
            disk=found.disk,
            network=found.network,
            notes=found.notes,
            removed=left,
        )
        handlers = Handlers({"bubblewrap": bubblewrap, "null": NullProvider()}, context.blobs)
        await work(context, {"world": handlers.on_world_requested, "trial": handlers.on_trial})
    finally:
        await bubblewrap.close()


def main() -> None:
    """Start the sandbox."""
    service.serve("sandbox", SandboxSettings, run, code.versions)
