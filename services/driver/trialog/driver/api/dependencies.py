"""What the API works with, handed in by main.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncEngine

from trialog.driver.api.following import Following
from trialog.driver.api.reader import Reader
from trialog.spine.blobs import BlobStore
from trialog.spine.bus import Bus
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.runs import Runs


@dataclass(frozen=True, kw_only=True)
class ApiDependencies:
    """``request_s`` bounds each request's wait for Postgres. Without a bus, streams only poll.

    Tasks are read below ``task_roots`` only; so many requests at a time read some, since a task is
    in memory then. ``spool_folder`` is where uploads are spooled (None: the system's).
    """

    log: PostgresLog
    engine: AsyncEngine
    blobs: BlobStore
    runs: Runs
    bus: Bus | None
    is_ready: Callable[[], bool]
    api_key: str | None = None
    max_body_bytes: int = 1_000_000
    request_s: float = 5.0
    task_roots: tuple[Path, ...] = ()
    max_archive_bytes: int = 2_000_000_000
    spool_folder: Path | None = None
    receiving_tasks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(16))
    reading_tasks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))


def _dependencies(request: Request) -> ApiDependencies:
    return request.app.state.dependencies


def _reader(request: Request) -> Reader:
    return request.app.state.reader


def _following(request: Request) -> Following:
    return request.app.state.following


Deps = Annotated[ApiDependencies, Depends(_dependencies)]
Reading = Annotated[Reader, Depends(_reader)]
Streams = Annotated[Following, Depends(_following)]
