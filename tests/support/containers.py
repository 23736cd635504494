"""Postgres and NATS as containers, where a Docker daemon answers; else the embedded binaries.

``TRIALOG_TEST_SERVICES`` (containers, embedded) decides for who wants the other.
"""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from support.waiting import eventually
from trialog.spine.bus import DOWN as BUS_DOWN
from trialog.spine.bus import Bus
from trialog.spine.database import DOWN, connect
from trialog.spine.migrate import migrate

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

POSTGRES, NATS = "postgres:18", "nats:2"
_READY_S = 120


@functools.cache
def which() -> str:
    """Return what the session's tests run on: containers or embedded."""
    asked = os.environ.get("TRIALOG_TEST_SERVICES")
    if asked:
        assert asked in ("containers", "embedded"), f"TRIALOG_TEST_SERVICES={asked}?"
        return asked
    return "containers" if _docker_answers() else "embedded"


def _docker_answers() -> bool:
    argv = ["docker", "info", "--format", "{{.ServerVersion}}"]
    try:
        said = subprocess.run(argv, capture_output=True, timeout=10, text=True, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.returncode == 0 and bool(said.stdout.strip())


class Containers:
    """What tests use of a stack (`trialog.cli.stack.stack.Stack`), on published fixed ports."""

    def __init__(self) -> None:
        self._password = secrets.token_hex(16)
        self._ports = {"postgres": _free_port(), "nats": _free_port()}
        self._containers: dict[str, DockerContainer] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="trialog-blobs-"))

    async def __aenter__(self) -> Self:
        for name in self._ports:
            await asyncio.to_thread(self._start, name)
        await self.ready(_READY_S)
        await migrate(self.admin_database_url, self.database_url)
        return self

    async def __aexit__(self, *_: object) -> None:
        for container in self._containers.values():
            await asyncio.to_thread(container.stop)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, name: str) -> None:
        with warnings.catch_warnings():
            # Its modules warn of one another, and take a second that only this path needs.
            warnings.simplefilter("ignore")
            from testcontainers.core.container import DockerContainer  # noqa: PLC0415

        if name == "postgres":
            container = (
                DockerContainer(POSTGRES)
                .with_env("POSTGRES_USER", "owner")
                .with_env("POSTGRES_PASSWORD", self._password)
                .with_env("POSTGRES_DB", "trialog")
                .with_bind_ports(5432, self._ports[name])
            )
        else:
            container = (
                DockerContainer(NATS)
                .with_command(f"-js -sd /data --user trialog --pass {self._password}")
                .with_bind_ports(4222, self._ports[name])
            )
        container.start()
        self._containers[name] = container

    async def ready(self, timeout_s: float) -> None:
        """Wait until both answer."""
        await eventually(_answers(self._ask_postgres, DOWN), timeout_s)
        await eventually(_answers(self._ask_nats, BUS_DOWN), timeout_s)

    async def _ask_postgres(self) -> None:
        connection = await connect(self.admin_database_url)
        await connection.close()

    async def _ask_nats(self) -> None:
        bus = await Bus.connect(self.nats_url, "ready")
        await bus.ensure_stream()
        await bus.close()

    def _url(self, role: str) -> str:
        return f"postgresql://{role}:{self._password}@127.0.0.1:{self._ports['postgres']}/trialog"

    @property
    def database_url(self) -> str:
        """Postgres as the services see it."""
        return self._url("trialog_services")

    @property
    def admin_database_url(self) -> str:
        """Postgres as its owner sees it."""
        return self._url("owner")

    @property
    def nats_url(self) -> str:
        """The bus."""
        return f"nats://trialog:{self._password}@127.0.0.1:{self._ports['nats']}"

    @property
    def env(self) -> dict[str, str]:
        """What services would be told."""
        return {"TRIALOG_BLOB_DIR": str(self._folder)}

    async def restart_infrastructure(self, name: str, wipe: bool = False) -> None:
        """Restart a server on the same port; ``wipe`` drops what the bus holds."""
        if wipe:
            assert name == "nats", "only the bus holds no truth"
            await asyncio.to_thread(self._containers[name].stop)
            await asyncio.to_thread(self._start, name)
        else:
            wrapped = self._containers[name].get_wrapped_container()
            await asyncio.to_thread(functools.partial(wrapped.restart, timeout=20))
        await self.ready(_READY_S)

    def kill_backend(self, pid: int) -> None:
        """Kill one of Postgres's processes, by its pid in there."""
        self._containers["postgres"].exec(["kill", f"-{signal.SIGKILL.value}", str(pid)])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def _answers(
    ask: Callable[[], Awaitable[None]], down: tuple[type[BaseException], ...]
) -> Callable[[], Awaitable[bool]]:
    async def answers() -> bool:
        try:
            await ask()
        except down:
            return False
        return True

    return answers
