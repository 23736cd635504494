"""A TCP proxy that loses an answer: what was asked is done, and nobody learns of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit, urlunsplit


class LossyProxy:
    """Forwards to a server until it meets the marked request; loses its answer and breaks off."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._marker: bytes | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost = 0

    def lose_answer_to(self, marker: bytes) -> None:
        """Lose the answer to the next request that holds these bytes."""
        self._marker = marker

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either side ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
        losing = asyncio.Event()

        async def forward() -> None:
            while data := await reader.read(65_536):
                if self._marker is not None and self._marker in data:
                    self._marker = None
                    losing.set()
                up_writer.write(data)
                await up_writer.drain()

        async def answer() -> None:
            while data := await up_reader.read(65_536):
                if losing.is_set():
                    self.lost += 1
                    return
                writer.write(data)
                await writer.drain()

        both = [asyncio.create_task(forward()), asyncio.create_task(answer())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for half in both:
                half.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            writer.close()
            up_writer.close()
            self._tasks.discard(task)

    async def stop(self) -> None:
        """Break every connection off."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def lossy(url: str) -> AsyncGenerator[tuple[LossyProxy, str]]:
    """Yield a proxy before the server of a URL, and the URL that goes through it."""
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    proxy = LossyProxy(parts.hostname, parts.port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    login, _, _ = parts.netloc.rpartition("@")
    try:
        yield proxy, urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}"))
    finally:
        server.close()
        await proxy.stop()
        await server.wait_closed()
