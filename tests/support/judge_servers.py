"""Real judge servers for tests: the stand-in as a process, and one that answers as told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

Respond = Callable[[bytes, dict[str, str]], bytes | None]


@contextlib.asynccontextmanager
async def standin(
    *, port: int = 0, state: Path | None = None
) -> AsyncGenerator[tuple[str, asyncio.subprocess.Process]]:
    """Start the stand-in judge and yield (url, process); end it after."""
    argv = [sys.executable, "-m", "trialog.judge.standin", "--port", str(port)]
    if state is not None:
        argv += ["--state", str(state)]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        yield json.loads(line)["url"], process
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), 30)


@contextlib.asynccontextmanager
async def scripted(respond: Respond) -> AsyncGenerator[str]:
    """Serve whole HTTP responses made from (body, headers); None breaks the connection off."""

    serving: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(_serve(reader, writer, respond)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, respond: Respond
) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = (line.split(":", 1) for line in head.splitlines()[1:] if ":" in line)
            headers = {name.lower(): value.strip() for name, value in lines}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            answer = respond(body, headers)
            if answer is None:
                return
            writer.write(answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def http(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """Return a whole HTTP/1.1 response."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body
