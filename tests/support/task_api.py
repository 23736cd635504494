"""Asking a served API for runs of tasks: what its tests share."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
from support.api import Api, serve_api
from trialog.proto.tasks import manifest
from trialog.proto.tasks.manifest import Manifest
from trialog.spine.blobs import PostgresBlobs
from trialog.spine.bus import Bus
from trialog.spine.postgres.log import PostgresLog

IMAGES = {"debian:bookworm-slim": "host"}
TAR = {"Content-Type": "application/x-tar"}


@contextlib.asynccontextmanager
async def serve_tasks(
    log: PostgresLog, blobs: PostgresBlobs, bus: Bus, folder: Path
) -> AsyncGenerator[Api]:
    """Serve the API; tasks may be read below tasks/ of a folder, uploads go to its spool/."""
    roots, spool = folder / "tasks", folder / "spool"
    for each in (roots, spool):
        each.mkdir(exist_ok=True)
    settings: dict[str, Any] = {"task_roots": (roots,), "spool_folder": spool}
    async with serve_api(log, blobs, bus, max_archive_bytes=2_000_000, **settings) as api:
        yield api


def body(path: Path | str, **more: Any) -> dict[str, Any]:
    """Return the body of a run of a folder's tasks."""
    return {"tasks": {"path": str(path)}, "agent": "oracle", "images": IMAGES} | more


async def asked(api: httpx.AsyncClient, body: dict[str, Any], **more: Any) -> Any:
    """Ask for a run and return it."""
    answer = await api.post("/runs", json=body, **more)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def refused(api: httpx.AsyncClient, sent: dict[str, Any], path: str = "/runs") -> Any:
    """Return the refusal's messages by field."""
    answer = await api.post(path, json=sent)
    assert answer.status_code == 422, answer.text
    return {error["field"]: error["message"] for error in answer.json()["errors"]}


async def put(api: httpx.AsyncClient, data: bytes, **more: Any) -> httpx.Response:
    """Upload an archive."""
    return await api.put("/task-archives", content=data, headers=TAR, **more)


async def tasks_of(blobs: PostgresBlobs, run: Any) -> Manifest:
    """Return the tasks that a run holds."""
    return manifest.decode(await blobs.get(run["spec"]["tasks"]["manifest"]))
