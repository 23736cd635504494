"""The life of a service process: wait for its parts, be present, work, end in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

import uvloop
from pydantic import ValidationError

from trialog.proto.codes import MissingSourceError
from trialog.spine import bus as bus_module
from trialog.spine import codes, telemetry
from trialog.spine import database as database_module
from trialog.spine.blobs import PostgresBlobs, sweep
from trialog.spine.bus import Bus
from trialog.spine.database import Database
from trialog.spine.health import HealthServer
from trialog.spine.postgres import REVISION, queries
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.presence import Presence, new_incarnation
from trialog.spine.runs import Runs
from trialog.spine.settings import ServiceSettings

_WAIT_S = 0.1
_SAY_S = 2.0
_T = TypeVar("_T")


@dataclass(slots=True)
class Context:
    """What a service works with, wired by ``serve`` alone."""

    name: str
    settings: ServiceSettings
    database: Database
    log: PostgresLog
    bus: Bus
    blobs: PostgresBlobs
    runs: Runs
    presence: Presence
    code: Mapping[str, str]
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def listen(self) -> None:
        """Let SIGTERM and SIGINT stop the service; again after a library took the signals."""
        _listen(self.stopping)

    @property
    def worker(self) -> str:
        """Name of this process on the log: its service and incarnation."""
        return f"{self.name}-{self.presence.incarnation:x}"


Body = Callable[[Context], Coroutine[Any, Any, None]]
Versions = Callable[[], Mapping[str, str]]


def serve(
    name: str, settings_type: type[ServiceSettings], body: Body, versions: Versions = dict
) -> None:
    """Run a service until SIGTERM or SIGINT; exit 2 when its settings are wrong or its own code's
    source is missing.

    ``body`` is the service: it returns after ``context.stopping`` is set. ``versions`` says what
    code it runs for others, by name; that is told before the service is ready.
    """
    try:
        settings = settings_type.from_environment()
        code = versions()  # once, and now: the files may change while the process lives
    except ValidationError as error:
        for problem in error.errors():
            place = "TRIALOG_" + "_".join(map(str, problem["loc"])).upper()
            sys.stderr.write(f"{name}: {place}: {problem['msg']}\n")
        raise SystemExit(2) from None
    except MissingSourceError as error:
        sys.stderr.write(f"{name}: {error}\n")
        raise SystemExit(2) from None
    telemetry.configure(name, settings.log_level)
    uvloop.run(_serve(name, settings, body, code))


async def _serve(name: str, settings: ServiceSettings, body: Body, code: Mapping[str, str]) -> None:
    waiting: list[str | None] = ["start"]
    stopping = asyncio.Event()
    _listen(stopping)
    async with AsyncExitStack() as stack:
        health = HealthServer(settings.http_host, settings.http_port, lambda: waiting[0])
        health.start()
        stack.callback(health.stop)
        starting = asyncio.create_task(_connect(name, settings, stack, waiting, stopping, code))
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        context = starting.result()
        waiting[0] = None
        telemetry.logger().info("ready", health_port=health.port, worker=context.worker)
        await body(context)


def _listen(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)


async def _connect(
    name: str,
    settings: ServiceSettings,
    stack: AsyncExitStack,
    waiting: list[str | None],
    stopping: asyncio.Event,
    code: Mapping[str, str],
) -> Context:
    url = settings.database_url.get_secret_value()
    database = Database(url)
    stack.push_async_callback(database.dispose)
    incarnation = new_incarnation()
    log = PostgresLog(database, incarnation)
    presence = Presence(url, name, incarnation, log.reincarnate)

    waiting[0] = "Postgres (TRIALOG_DATABASE_URL)"
    await _until(lambda: database.fetch("select 1"), database_module.DOWN, waiting)
    waiting[0] = f"the schema {REVISION} (python -m trialog.spine.migrate)"
    await _until(lambda: _check_schema(database), database_module.DOWN, waiting)
    await _until(lambda: codes.register(database, name, code), database_module.DOWN, waiting)
    waiting[0] = "a place among the processes"
    await _until(presence.join, database_module.DOWN, waiting)
    stack.push_async_callback(presence.leave)
    stack.push_async_callback(log.close)
    waiting[0] = "NATS (TRIALOG_NATS_URL)"
    nats_url = settings.nats_url.get_secret_value()
    bus = await _until(lambda: Bus.connect(nats_url, name), bus_module.DOWN, waiting)
    stack.push_async_callback(bus.close)
    log.on_append = _Hints(bus).send
    keeping = asyncio.create_task(presence.keep(), name="presence")
    stack.callback(keeping.cancel)
    settings.blob_dir.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # what writes next says that the folder cannot be written
        await asyncio.to_thread(sweep, settings.blob_dir)
    blobs = PostgresBlobs(database, settings.blob_dir)
    runs = Runs(log, code, blobs)
    return Context(name, settings, database, log, bus, blobs, runs, presence, code, stopping)


async def _check_schema(database: Database) -> None:
    """Raise a ConnectionError unless the schema is the one that this build works with."""
    rows = await database.fetch(queries.SCHEMA)
    found = [row[0] for row in rows]
    if found != [REVISION]:
        raise ConnectionError(f"the database has the schema {found}, this service needs {REVISION}")


class _Hints:
    """Sends hints without holding up the writer; a hint that cannot be sent is a poll's delay."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, partition: int) -> None:
        task = asyncio.create_task(self._send(partition))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, partition: int) -> None:
        with contextlib.suppress(*bus_module.DOWN):
            await self._bus.hint(partition)


async def _until(
    attempt: Callable[[], Awaitable[_T]],
    down: tuple[type[BaseException], ...],
    waiting: list[str | None],
) -> _T:
    """Try until it works; say what is waited for at once and then every two seconds."""
    loop = asyncio.get_running_loop()
    said_at = -_SAY_S
    while True:
        try:
            return await attempt()
        except down as error:
            if loop.time() - said_at >= _SAY_S:
                said_at = loop.time()
                telemetry.logger().warning(f"waiting for {waiting[0]}", error=str(error))
            await asyncio.sleep(_WAIT_S)
