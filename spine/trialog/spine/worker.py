"""A service that works through queues: one consumer a kind, ended in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from trialog.spine.consumer import Consumer, Handler
from trialog.spine.service import Context


async def work(context: Context, handlers: Mapping[str, Handler]) -> None:
    """Consume each kind of work until the service is told to stop, then let held work end.

    Raises what breaks a consumer for good, so that the process ends and is started anew.
    """
    settings = context.settings
    consumers = [
        Consumer(
            bus=context.bus,
            log=context.log,
            runs=context.runs,
            kind=kind,
            pool=settings.pool,
            handler=handler,
            concurrency=settings.concurrency,
            lease_ms=settings.lease_ms,
            worker=context.worker,
        )
        for kind, handler in handlers.items()
    ]
    running = [asyncio.create_task(consumer.run()) for consumer in consumers]
    stopped = asyncio.create_task(context.stopping.wait())
    await asyncio.wait([*running, stopped], return_when=asyncio.FIRST_COMPLETED)
    for task in running:
        task.cancel()
    ended = await asyncio.gather(*running, return_exceptions=True)
    await asyncio.gather(*(consumer.drain(settings.grace_s) for consumer in consumers))
    for result in ended:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result
