"""Keeps one process running: restart policy, kept exits, readiness."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trialog.cli.stack import reaper
from trialog.cli.stack.errors import ProcessNotReady
from trialog.cli.stack.process import ProcessSpec, log_tail, spawn
from trialog.cli.stack.watchdog import Watchdog

_PROBE_EVERY_S = 0.02
_FAILED_STARTS = 5


class Backoff:
    """When to restart: at once first, then 0.1 s doubling to 5 s; 10 s of health forgive all."""

    FIRST_S, LONGEST_S, HEALTHY_S = 0.1, 5.0, 10.0

    def __init__(self) -> None:
        self.failures = 0

    def delay_s(self, uptime_s: float) -> float:
        """Return the seconds to wait after a life of `uptime_s`."""
        if uptime_s >= self.HEALTHY_S:
            self.failures = 0
        self.failures += 1
        if self.failures == 1:
            return 0.0
        return min(self.LONGEST_S, self.FIRST_S * 2 ** (self.failures - 2))


@dataclass(frozen=True)
class ProcessExit:
    """One exit of a process; `returncode` is minus the signal's number when one ended it."""

    name: str
    pid: int
    returncode: int
    at: datetime
    expected: bool


@dataclass(frozen=True)
class StackEvent:
    """What happened to a process: `started`, `exited`, `restarting` (in `delay_s`)."""

    kind: str
    name: str
    pid: int
    returncode: int | None = None
    delay_s: float = 0.0


EventCallback = Callable[[StackEvent], None]


class Supervised:
    """A process that is started again whenever it ends without having been asked to."""

    def __init__(
        self, spec: ProcessSpec, root: Path, logs: Path, watchdog: Watchdog, notify: EventCallback
    ) -> None:
        self.spec = spec
        self.restarts = 0
        self.exits: list[ProcessExit] = []
        self._root = root
        self._log = logs / f"{spec.name}.log"
        self._watchdog = watchdog
        self._notify = notify
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._keeper: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self._exited = asyncio.Condition()

    @property
    def pid(self) -> int | None:
        """The pid of the present life, None between two lives and after the end."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    @property
    def running(self) -> bool:
        """Whether the process is kept running, also between two lives."""
        return self._keeper is not None and not self._stopping

    async def start(self) -> None:
        """Spawn the process and keep it running; returns once it is spawned, not yet ready."""
        self._stopping = False
        process = await self._spawn()
        self._keeper = asyncio.create_task(self._keep(process), name=f"keep {self.spec.name}")

    async def _spawn(self) -> asyncio.subprocess.Process:
        process = await spawn(self.spec, self._root, self._log)
        self._process = process
        self._watchdog.announce(process.pid, self.spec.name)
        self._notify(StackEvent("started", self.spec.name, process.pid))
        return process

    async def _keep(self, process: asyncio.subprocess.Process) -> None:
        while True:
            born = time.monotonic()
            returncode = await process.wait()
            self._watchdog.forget(process.pid)
            name = self.spec.name
            self.exits.append(
                ProcessExit(name, process.pid, returncode, datetime.now(UTC), self._stopping)
            )
            self._notify(StackEvent("exited", name, process.pid, returncode))
            async with self._exited:
                self._exited.notify_all()
            if self.spec.owns_descendants:
                await asyncio.to_thread(reaper.end_all, self._root, name)
            if self._stopping:
                return
            delay_s = self._backoff.delay_s(time.monotonic() - born)
            self._notify(StackEvent("restarting", name, process.pid, returncode, delay_s))
            await asyncio.sleep(delay_s)
            self.restarts += 1
            process = await self._spawn()

    async def exited(self, pid: int) -> ProcessExit:
        """Wait until the life with this pid has ended; return its exit."""
        async with self._exited:
            while True:
                for one in reversed(self.exits):
                    if one.pid == pid:
                        return one
                await self._exited.wait()

    def send(self, number: signal.Signals) -> int | None:
        """Send a signal to the present life; return its pid, None when there is none."""
        pid = self.pid
        if pid is not None:
            reaper.send(pid, number)
        return pid

    async def stop(self) -> None:
        """End the process: its stop signal, then SIGKILL once `stop_timeout_s` have passed."""
        keeper = self._keeper
        if keeper is None:
            return
        self._stopping = True
        if self.send(self.spec.stop_signal) is None:  # between two lives
            keeper.cancel()
        done, _ = await asyncio.wait([keeper], timeout=self.spec.stop_timeout_s)
        if not done:
            self.send(signal.SIGKILL)
            await asyncio.wait([keeper])
        self._keeper = None
        with contextlib.suppress(asyncio.CancelledError):
            keeper.result()

    async def restart(self) -> None:
        """Stop the process and start it again at once; counts as a restart."""
        await self.stop()
        self.restarts += 1
        await self.start()

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait until the probe succeeds.

        Raises ProcessNotReady, with the end of the log, when that takes longer than `timeout_s`
        or when the process died five times meanwhile. Earlier deaths do not count: a process that
        was killed again and again, each time once it was ready, starts well.
        """
        deadline = time.monotonic() + timeout_s
        before = len(self.exits)
        while (pid := self.pid) is None or not await self.spec.probe(pid):
            deaths = len(self.exits) - before
            if deaths >= _FAILED_STARTS:
                raise ProcessNotReady(self._describe(f"died {deaths} times"))
            if time.monotonic() > deadline:
                raise ProcessNotReady(self._describe(f"is not ready after {timeout_s:.0f} s"))
            if self._keeper is None or self._keeper.done():
                raise ProcessNotReady(self._describe("has been stopped"))
            await asyncio.sleep(_PROBE_EVERY_S)

    def _describe(self, what: str) -> str:
        last = f"; last exit: {self.exits[-1].returncode}" if self.exits else ""
        return f"{self.spec.name} {what}{last}. The end of {self._log}:\n{log_tail(self._log)}"
