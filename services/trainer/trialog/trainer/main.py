"""``python -m trialog.trainer``: the composition root of the trainer."""

from __future__ import annotations

import asyncio
from functools import partial

from trialog.spine import codes, service, telemetry
from trialog.spine.service import Context
from trialog.spine.worker import work
from trialog.trainer import code
from trialog.trainer.errors import HostUnavailableError
from trialog.trainer.handlers import Handlers
from trialog.trainer.host import RayHost
from trialog.trainer.settings import TrainerSettings

_CONNECT_S = 3600.0


async def run(context: Context) -> None:
    """Apply steps until told to stop; Ray may come later than we do."""
    settings = context.settings
    assert isinstance(settings, TrainerSettings)
    # Ray puts handlers of its own on SIGTERM whenever it connects.
    host = RayHost(settings.ray_address, on_connect=context.listen)
    connecting = asyncio.create_task(_connect(host))
    try:
        tell = partial(codes.register, context.database, context.name)
        handlers = Handlers(host, context.blobs, settings.apply_timeout_s, context.code, tell)
        await work(context, {"step": handlers.on_step_requested})
    finally:
        connecting.cancel()
        await host.close()


async def _connect(host: RayHost) -> None:
    """Connect ahead of the first step, which then need not wait for it."""
    try:
        await host.connect(timeout_s=_CONNECT_S)
        telemetry.logger().info("connected to Ray")
    except HostUnavailableError as error:
        telemetry.logger().warning("Ray is not there yet", error=str(error))


def main() -> None:
    """Start the trainer."""
    service.serve("trainer", TrainerSettings, run, code.versions)
