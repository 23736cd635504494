"""Serves the API until the process stops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator

import uvicorn
from fastapi import FastAPI

_GRACE_S = 2
_BACKLOG = 1024


class _Server(uvicorn.Server):
    """Leaves the process's signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def run_api(
    app: FastAPI,
    host: str,
    port: int,
    stopping: asyncio.Event,
    on_bound: Callable[[int], None] | None = None,
) -> None:
    """Serve until ``stopping`` is set, then end open streams and return within two seconds.

    ``on_bound`` is told the port, which with port 0 the system chooses. Raises OSError when the
    port is taken by something that does not share it.
    """
    with _listening(host, port) as listener:
        if on_bound is not None:
            on_bound(listener.getsockname()[1])
        server = _Server(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=_BACKLOG,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]), name="uvicorn")
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            app.state.following.close()
            server.should_exit = True
            await serving


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that several drivers can share: the system deals out connections."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener
