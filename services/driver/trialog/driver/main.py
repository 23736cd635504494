"""``python -m trialog.driver``: the composition root of the driver."""

from __future__ import annotations

import asyncio
import importlib

from trialog.driver.owner import Owner
from trialog.driver.settings import DriverSettings
from trialog.spine import service
from trialog.spine.service import Context


async def drive(context: Context) -> None:
    """Follow and lead the partition, and serve the API, until told to stop."""
    settings = context.settings
    assert isinstance(settings, DriverSettings)
    owner = Owner(context, settings.partition)
    leading = asyncio.create_task(owner.run(), name="owner")
    serving = asyncio.create_task(_serve(context, settings, owner), name="api")
    stopped = asyncio.create_task(context.stopping.wait())
    await asyncio.wait({leading, serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    context.stopping.set()
    leading.cancel()
    results = await asyncio.gather(leading, serving, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


async def _serve(context: Context, settings: DriverSettings, owner: Owner) -> None:
    """Serve the API. It takes longer to import than all the rest, so after a crash the work that
    waits to be asked for comes first."""
    await owner.settled.wait()
    api = await asyncio.to_thread(importlib.import_module, "trialog.driver.api")
    sql = await asyncio.to_thread(importlib.import_module, "trialog.spine.sql")
    url = settings.database_url.get_secret_value()
    engine = await asyncio.to_thread(sql.engine_for, url)
    key = settings.api_key.get_secret_value() if settings.api_key else None
    app = api.create_app(
        api.ApiDependencies(
            log=context.log,
            engine=engine,
            blobs=context.blobs,
            runs=context.runs,
            bus=context.bus,
            api_key=key,
            max_body_bytes=settings.max_body_bytes,
            task_roots=settings.task_folders,
            max_archive_bytes=settings.max_archive_bytes,
            spool_folder=settings.blob_dir,
            is_ready=lambda: owner.following,
        )
    )
    try:
        await api.run_api(app, settings.api_host, settings.api_port, context.stopping)
    finally:
        await engine.dispose()


def main() -> None:
    """Start the driver."""
    service.serve("driver", DriverSettings, drive)
