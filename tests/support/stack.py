"""Postgres and NATS for a whole test session, and what a service wires from them.

As containers where a Docker daemon answers, as embedded binaries elsewhere (support/containers.py);
the session's header says which. Either is watched from a thread with an event loop of its own, so
it lives through those of the tests.
The log is append-only: tests share it and take fresh run ids instead of an empty database.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from support.containers import Containers, which
from trialog.cli.stack.options import StackOptions
from trialog.cli.stack.stack import Stack
from trialog.proto.ids import run_id_from
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.bus import Bus
from trialog.spine.database import Database
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.presence import new_incarnation

T = TypeVar("T")


BARE = StackOptions(with_ray=False, with_services=False, migrate=True)


class StackThread:
    """A migrated stack on a thread with a loop of its own; by default without Ray and services."""

    def __init__(self, options: StackOptions = BARE) -> None:
        self.options = options
        self._up = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._main(),), name="stack")
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._leave: asyncio.Event
        self.stack: Stack
        self.containers: Containers | None = None

    def start(self) -> None:
        """Start the thread; returns once everything answers and the schema is there."""
        self._thread.start()
        self._up.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop everything."""
        if self._failure is None:
            self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the stack, such as restart_infrastructure, on its own loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        try:
            async with self._servers():
                await self.servers.ready(120)
                self._up.set()
                await self._leave.wait()
        except BaseException as failure:  # it is raised where the stack was asked for
            self._failure = failure
            self._up.set()

    def _servers(self) -> Stack | Containers:
        """Return what is to be started: containers hold no services, and no Ray."""
        if self.options is BARE and which() == "containers":
            self.containers = Containers()
            return self.containers
        self.stack = Stack(self.options)
        return self.stack

    @property
    def servers(self) -> Stack | Containers:
        """Postgres and NATS, whichever they are."""
        return self.containers or self.stack

    def restart(self, name: str, *, wipe: bool = False) -> None:
        """Restart postgres or nats; ``wipe`` drops what the bus holds."""
        self.call(self.servers.restart_infrastructure(name, wipe=wipe))

    def kill_backend(self, pid: int) -> None:
        """Kill one of Postgres's processes, so that it restarts all of them."""
        if self.containers is None:
            os.kill(pid, signal.SIGKILL)
        else:
            self.containers.kill_backend(pid)

    @property
    def database_url(self) -> str:
        """Postgres as the services see it."""
        return self.servers.database_url

    @property
    def admin_database_url(self) -> str:
        """Postgres as its owner sees it."""
        return self.servers.admin_database_url

    @property
    def nats_url(self) -> str:
        """The bus."""
        return self.servers.nats_url

    @property
    def blob_dir(self) -> Path:
        """The folder of large blobs."""
        return Path(self.servers.env["TRIALOG_BLOB_DIR"])


def pytest_report_header() -> str:
    """Say at the session's head what its tests run on."""
    said = {
        "containers": "containers (a Docker daemon answers)",
        "embedded": "embedded binaries (no Docker daemon answers, or they were asked for)",
    }
    return f"postgres and nats: {said[which()]}"


@pytest.fixture(scope="session")
def stack() -> Generator[StackThread]:
    """Postgres and NATS, started once a session."""
    running = StackThread()
    running.start()
    yield running
    running.stop()


@pytest_asyncio.fixture
async def database(stack: StackThread) -> AsyncGenerator[Database]:
    """A pool of connections to the session's Postgres."""
    database = Database(stack.database_url)
    yield database
    await database.dispose()


@pytest_asyncio.fixture
async def log(database: Database) -> AsyncGenerator[PostgresLog]:
    """The event log, under an incarnation of the test's own."""
    log = PostgresLog(database, new_incarnation())
    yield log
    await log.close()


@pytest_asyncio.fixture
async def bus(stack: StackThread) -> AsyncGenerator[Bus]:
    """A connection to the session's NATS."""
    bus = await Bus.connect(stack.nats_url, "test")
    yield bus
    await bus.close()


@pytest.fixture
def blobs(stack: StackThread, database: Database) -> PostgresBlobs:
    """The blob store of the session's stack."""
    stack.blob_dir.mkdir(parents=True, exist_ok=True)
    return PostgresBlobs(database, stack.blob_dir)


@pytest.fixture
def run_id() -> str:
    """A run id that nobody has used."""
    return run_id_from(os.urandom(16))
