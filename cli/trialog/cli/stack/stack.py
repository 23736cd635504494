"""The embedded stack as one asynchronous context manager."""

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from trialog.cli.stack import nats, postgres, ray, reaper, services
from trialog.cli.stack.checks import check_machine, check_space
from trialog.cli.stack.errors import UnknownProcess
from trialog.cli.stack.layout import (
    Credentials,
    Layout,
    fresh_ray_folder,
    load_credentials,
    open_layout,
    rotate_logs,
    take_lock,
)
from trialog.cli.stack.migration import migrate
from trialog.cli.stack.options import StackOptions
from trialog.cli.stack.ports import PortBook
from trialog.cli.stack.process import ProcessSpec
from trialog.cli.stack.supervisor import EventCallback, ProcessExit, StackEvent, Supervised
from trialog.cli.stack.watchdog import Watchdog

INFRASTRUCTURE = ("postgres", "nats", "ray")
_INFRASTRUCTURE_READY_S = 60.0


@dataclass(frozen=True)
class ProcessState:
    """A process as seen now; `pid` is None between two lives."""

    pid: int | None
    restarts: int


def _ignore(event: StackEvent) -> None:
    del event


async def _together(*steps: Coroutine[object, object, None]) -> None:
    """Run steps side by side; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(step)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


class Stack:
    """Postgres, NATS, Ray and our services as supervised child processes.

    ```
    async with Stack(StackOptions()) as stack:
        await stack.ready()
        print(stack.api_url)
    ```

    Entering returns once Postgres and NATS answer and the rest is spawned; `ready` waits for all
    of it. Raises StackError. Every process dies with this one, however it ends.
    """

    def __init__(self, options: StackOptions, on_event: EventCallback | None = None) -> None:
        options.check()
        self.options = options
        self._on_event = on_event or _ignore
        self._processes: dict[str, Supervised] = {}
        self._layout: Layout | None = None
        self._watchdog: Watchdog | None = None
        self._ports: PortBook | None = None
        self._credentials: Credentials | None = None

    async def __aenter__(self) -> "Stack":
        """Start the stack; what was started is stopped again when a part of it fails."""
        try:
            await self._start()
        except BaseException:  # an interrupt too: what runs already must end
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop everything, services first, and remove what is temporary."""
        await self._stop()

    async def _start(self) -> None:
        await asyncio.to_thread(check_machine, self.options)
        layout = self._layout = open_layout(self.options.data_dir)
        lock = take_lock(layout)
        watchdog = self._watchdog = await Watchdog.start(layout.root, lock)
        if layout.ephemeral:
            watchdog.remove(layout.root)
        check_space(layout.root)
        await asyncio.to_thread(reaper.end_all, layout.root, spare=[watchdog.pid])
        rotate_logs(layout)
        self._credentials = load_credentials(layout)
        self._ports = PortBook(layout.ports)
        await _together(self._start_postgres(), self._start_nats())
        # Only now: Ray's start takes both cores for seconds.
        if self.options.with_ray:
            folder = fresh_ray_folder(layout)
            watchdog.remove(folder.parent)
            await self._add(ray.spec(layout, self._ports, self.options, folder))
        if self.options.migrates:
            admin = {"TRIALOG_ADMIN_DATABASE_URL": self.admin_database_url}
            await migrate({**self.env, **admin}, layout.root, self.log("migrate"))
        if self.options.with_services:
            await _together(*(self._start_service(n) for n in services.planned(self.options)))

    async def _start_service(self, name: str) -> None:
        await self._add(services.spec(name, self.options, self.layout, self.ports, self.env))

    async def _start_postgres(self) -> None:
        identity = await asyncio.to_thread(postgres.server_identity)
        await postgres.initialise(self.layout, self.credentials, identity)
        spec = postgres.spec(self.layout, self.ports.port("postgres"), identity)
        await (await self._add(spec)).wait_ready(_INFRASTRUCTURE_READY_S)

    async def _start_nats(self) -> None:
        port, monitor = self.ports.port("nats"), self.ports.port("nats-monitor")
        spec = nats.spec(self.layout, self.credentials, port, monitor)
        await (await self._add(spec)).wait_ready(_INFRASTRUCTURE_READY_S)

    async def _add(self, spec: ProcessSpec) -> Supervised:
        assert self._watchdog is not None
        layout = self.layout
        process = Supervised(spec, layout.root, layout.logs, self._watchdog, self._on_event)
        self._processes[spec.name] = process
        await process.start()
        return process

    async def _stop(self) -> None:
        ours = [p for name, p in self._processes.items() if name not in INFRASTRUCTURE]
        try:
            await asyncio.gather(*(process.stop() for process in ours))
            for name in reversed(INFRASTRUCTURE):
                if name in self._processes:
                    await self._processes[name].stop()
        finally:
            watchdog, self._watchdog = self._watchdog, None
            if watchdog is not None:
                await watchdog.finish()
            if self._ports is not None:
                self._ports.close()

    @property
    def layout(self) -> Layout:
        """The data folder."""
        assert self._layout is not None, "the stack has not been started"
        return self._layout

    @property
    def credentials(self) -> Credentials:
        """The generated secrets."""
        assert self._credentials is not None, "the stack has not been started"
        return self._credentials

    @property
    def ports(self) -> PortBook:
        """The ports by name."""
        assert self._ports is not None, "the stack has not been started"
        return self._ports

    @property
    def database_url(self) -> str:
        """The database's address for the app role."""
        return postgres.url(self.credentials, self.ports.port("postgres"), owner=False)

    @property
    def admin_database_url(self) -> str:
        """The database's address for its owner: for migrations only."""
        return postgres.url(self.credentials, self.ports.port("postgres"), owner=True)

    @property
    def nats_url(self) -> str:
        """The bus's address."""
        return nats.url(self.credentials, self.ports.port("nats"))

    @property
    def api_url(self) -> str:
        """The driver's API."""
        return services.api_url(self.options, self.ports)

    @property
    def ray_env(self) -> dict[str, str]:
        """What a process needs to join the Ray cluster."""
        return ray.client_env(self.layout, self.ports)

    @property
    def env(self) -> dict[str, str]:
        """What every service is told: addresses, folders and the pool."""
        return {
            "TRIALOG_DATABASE_URL": self.database_url,
            "TRIALOG_NATS_URL": self.nats_url,
            "TRIALOG_BLOB_DIR": str(self.layout.blobs),
            "TRIALOG_POOL": "default",
            **self.options.extra_env,
        }

    @property
    def processes(self) -> Mapping[str, ProcessState]:
        """Every supervised process by name: its pid now and how often it was restarted."""
        return {
            name: ProcessState(process.pid, process.restarts)
            for name, process in self._processes.items()
        }

    @property
    def exits(self) -> list[ProcessExit]:
        """Every exit so far, in order of time."""
        exits = [one for process in self._processes.values() for one in process.exits]
        return sorted(exits, key=lambda one: one.at)

    def log(self, name: str) -> Path:
        """Return the log file of a process."""
        return self.layout.logs / f"{name}.log"

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int | None:
        """Send a signal to a process; the stack restarts it if that ends it.

        Returns its pid, None between two lives. Raises UnknownProcess.
        """
        return self._process(name).send(number)

    async def start_service(self, kind: str) -> str:
        """Start one more process of a kind; return its name. Raises UnknownProcess."""
        number = 1 + sum(name.rpartition("-")[0] == kind for name in self._processes)
        name = f"{kind}-{number}"
        await self._start_service(name)
        return name

    async def stop_service(self, name: str) -> None:
        """Stop a service for good, cleanly; it stays listed. Raises UnknownProcess."""
        await self._process(name).stop()

    async def exited(self, name: str, pid: int) -> ProcessExit:
        """Wait until the life of `name` with this pid has ended. Raises UnknownProcess."""
        return await self._process(name).exited(pid)

    async def restart_infrastructure(self, name: str, wipe: bool = False) -> None:
        """Stop Postgres, NATS or Ray, start it again on the same ports and wait until it answers.

        `wipe` drops what the bus holds meanwhile (only for NATS). Raises UnknownProcess.
        """
        if name not in INFRASTRUCTURE:
            raise UnknownProcess(f"{name} is not one of {', '.join(INFRASTRUCTURE)}")
        process = self._process(name)
        await process.stop()
        if wipe:
            assert name == "nats", "only the bus holds no truth"
            await asyncio.to_thread(nats.wipe, self.layout)
        await process.restart()
        await process.wait_ready(_INFRASTRUCTURE_READY_S)

    def _process(self, name: str) -> Supervised:
        try:
            return self._processes[name]
        except KeyError:
            known = ", ".join(sorted(self._processes))
            raise UnknownProcess(f"no process {name!r} in this stack (it has {known})") from None

    async def ready(self, timeout_s: float = 120.0) -> None:
        """Wait until all running processes answer; raises ProcessNotReady with a log's end."""
        running = [process for process in self._processes.values() if process.running]
        await _together(*(process.wait_ready(timeout_s) for process in running))
