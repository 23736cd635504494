"""A service that is started before its parts waits, says what it waits for, and goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from support.stack import StackThread
from support.waiting import eventually
from trialog.spine.migrate import newest_revision
from trialog.spine.postgres import REVISION


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def moved(url: str, port: int) -> str:
    """Return the URL with another port."""
    old = urlsplit(url).port
    return url.replace(f":{old}", f":{port}")


async def forward(port: int, to: int) -> asyncio.Server:
    """Let a port lead to another: the part behind it comes up."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)

    return await asyncio.start_server(accept, "127.0.0.1", port)


async def waits_for(http_port: int) -> str | None:
    """Return what /readyz says is missing; None when the service is ready."""
    async with httpx.AsyncClient() as client:
        try:
            answer = await client.get(f"http://127.0.0.1:{http_port}/readyz")
        except httpx.TransportError:
            return "its own start"
    return answer.json().get("waiting_for")


def said(what: str, http_port: int) -> Callable[[], Any]:
    async def look() -> bool:
        return what in (await waits_for(http_port) or "")

    return look


@pytest.mark.stack
async def test_it_waits_for_each_part_in_turn(stack: StackThread, tmp_path: Path) -> None:
    http_port, postgres, nats = free_port(), free_port(), free_port()
    env = {
        **os.environ,
        "TRIALOG_DATABASE_URL": moved(stack.database_url, postgres),
        "TRIALOG_NATS_URL": moved(stack.nats_url, nats),
        "TRIALOG_BLOB_DIR": str(tmp_path),
        "TRIALOG_HTTP_PORT": str(http_port),
        "TRIALOG_JUDGE_URL": "http://127.0.0.1:1",
    }
    with (tmp_path / "log").open("wb") as log:
        argv = [sys.executable, "-m", "trialog.judge"]
        service = subprocess.Popen(argv, env=env, stderr=log)  # noqa: ASYNC220 - starts at once
    opened: list[asyncio.Server] = []
    try:
        await eventually(said("Postgres", http_port), 20)
        opened.append(await forward(postgres, urlsplit(stack.database_url).port or 0))
        await eventually(said("NATS", http_port), 20)
        opened.append(await forward(nats, urlsplit(stack.nats_url).port or 0))

        async def ready() -> bool:
            return await waits_for(http_port) is None

        await eventually(ready, 20)
        assert service.poll() is None
        assert "waiting for Postgres" in (tmp_path / "log").read_text()
        service.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(service.wait, 20) == 0
    finally:
        service.kill()
        service.wait()
        for server in opened:
            server.close()


def test_the_revision_that_services_want_is_the_newest() -> None:
    assert newest_revision() == REVISION
