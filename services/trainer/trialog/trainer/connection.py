"""The connection to a Ray cluster: made late, watched, given up in time, made again.

Two traps decide its shape. A process whose cluster is gone is ended by Ray after 60 s (``Failed to
connect to GCS``), so the cluster's port is probed all the time and the connection shut down when
nobody answers. And ``ray.init`` against nobody hangs, without a limit, in a thread that nothing can
stop, so it only runs once the port answers, in daemon threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from trialog.trainer.actor import NAMESPACE
from trialog.trainer.errors import HostUnavailableError

T = TypeVar("T")

PROBE_EVERY_S = 1.0
PROBE_TIMEOUT_S = 2.0
PROBE_FAILURES = 2
RETRY_FROM_S = 0.1
RETRY_TO_S = 1.0
CLOSE_TIMEOUT_S = 10.0

_log = logging.getLogger(__name__)


class Session:
    """One connection: the handles got over it, and word of its loss."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.actors: dict[str, Any] = {}


class RayConnection:
    """At most one session with the cluster at ``address`` (host:port), as Ray allows one a process.

    Ray reads RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH from the environment. ``on_connect`` is called
    after every connecting, which puts signal handlers of Ray's own over ours. Belongs to one event
    loop.
    """

    def __init__(self, address: str, on_connect: Callable[[], None] | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        self._host, self._port = host.strip("[]"), int(port)
        self._on_connect = on_connect
        self._lock = asyncio.Lock()
        self._session: Session | None = None
        self._busy: asyncio.Future[Any] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def open(self, deadline_s: float) -> Session:
        """Return the session, connecting first where there is none.

        ``deadline_s`` is a time of the event loop. Raises HostUnavailableError when it passes.
        """
        if self._session is not None:
            return self._session
        try:
            async with asyncio.timeout_at(deadline_s), self._lock:
                if self._session is None:
                    await self._connect()
                    if self._on_connect is not None:
                        self._on_connect()
                    self._session = Session()
                    self._watch = asyncio.create_task(self._probe_while(self._session))
                return self._session
        except TimeoutError as error:
            raise HostUnavailableError(f"no Ray cluster at {self._address} let us in") from error

    async def drop(self, session: Session) -> None:
        """Give a session up; the next ``open`` makes another. Does nothing the second time."""
        if session is self._session:
            self._session = None
            session.lost.set()
            async with self._lock:
                await self._in_thread(_shutdown)

    async def close(self) -> None:
        """Leave the cluster. Detached actors stay."""
        if self._watch is not None:
            self._watch.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S), self._lock:
                if self._session is not None:
                    self._session.lost.set()
                    self._session = None
                    await self._in_thread(_shutdown)

    async def _connect(self) -> None:
        wait_s = RETRY_FROM_S
        while True:
            if await self._answers():
                try:
                    await self._in_thread(lambda: _init(self._address))
                    return
                except (RuntimeError, ConnectionError, ValueError, OSError, _ray_error()) as error:
                    _log.warning("Ray at %s does not let us in: %s", self._address, error)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_TO_S)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run init or shutdown, never two at a time, even after a caller ran out of patience."""
        while self._busy is not None and not self._busy.done():
            await asyncio.wait([self._busy])
        busy = asyncio.wrap_future(in_thread(work))
        busy.add_done_callback(heard)  # its caller may be gone by then
        self._busy = busy
        return await asyncio.shield(busy)

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                _, writer = await asyncio.open_connection(self._host, self._port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    async def _probe_while(self, session: Session) -> None:
        failures = 0
        while failures < PROBE_FAILURES and session is self._session:
            await asyncio.sleep(PROBE_EVERY_S)
            failures = 0 if await self._answers() else failures + 1
        await self.drop(session)


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Run work in a daemon thread of its own: a call of Ray that hangs holds up nobody's exit."""
    future: Future[T] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()  # from here on nobody can cancel it
        try:
            result = work()
        except BaseException as error:  # whatever it is, who waits must hear of it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="ray-call", daemon=True).start()
    return future


def heard(future: asyncio.Future[Any]) -> None:
    """Done-callback of a future that its caller may have given up: its error is no surprise."""
    if not future.cancelled():
        future.exception()


def _init(address: str) -> None:
    import ray  # noqa: PLC0415 - takes 0.7 s, and only who connects needs it

    # One attempt, of some 40 s at most, instead of 20 in a row: who asks next may ask anew.
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")
    if ray.is_initialized():  # from a connection that came after its caller had gone
        ray.shutdown()
    ray.init(
        address=address,
        namespace=NAMESPACE,
        log_to_driver=False,
        configure_logging=False,
        logging_level=logging.WARNING,
    )


def _shutdown() -> None:
    import ray  # noqa: PLC0415

    ray.shutdown()


def _ray_error() -> type[Exception]:
    from ray.exceptions import RayError  # noqa: PLC0415

    return RayError
