"""Giving PID 1 its socket: a container is started by a daemon, to which none can be passed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import Self

from trialog.sandbox.docker.container import HANDOVER
from trialog.sandbox.docker.folder import Folder

_BACKLOG = 128


class Handover:
    """Two sockets for the length of a ``with`` block: the one that PID 1 will listen on, bound
    where nobody inside can reach it, and the bell at which PID 1 asks for it."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._path = folder.inside / HANDOVER
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as made:
            self._listener = made.enter_context(_bound(self._folder.address))
            inside = os.open(self._folder.inside, os.O_RDONLY | os.O_DIRECTORY)
            made.callback(os.close, inside)
            self._bell = made.enter_context(_bound(f"/proc/self/fd/{inside}/{HANDOVER}"))
            made.callback(self._path.unlink, missing_ok=True)
            self._bell.setblocking(False)
            self._closing = made.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    async def give(self) -> None:
        """Wait until PID 1 asks, and hand its socket over."""
        asking, _ = await asyncio.get_running_loop().sock_accept(self._bell)
        with asking:
            socket.send_fds(asking, [b"s"], [self._listener.fileno()])


def _bound(address: str) -> socket.socket:
    Path(address).unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(address)
        bound.listen(_BACKLOG)
    except BaseException:  # the descriptor must not leak, whatever it was
        bound.close()
        raise
    return bound
