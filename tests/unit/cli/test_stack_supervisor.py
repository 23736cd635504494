"""Restart policy, kept exits and readiness, with real (tiny) processes."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from trialog.cli.stack import ProcessNotReady, StackEvent
from trialog.cli.stack.process import ProcessSpec, spawn
from trialog.cli.stack.supervisor import Backoff, Supervised
from trialog.cli.stack.watchdog import Watchdog

RUNNING = "import signal; print('here', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); " + RUNNING


def test_first_restart_is_immediate_then_the_pause_doubles_to_five_seconds() -> None:
    backoff = Backoff()
    pauses = [backoff.delay_s(0.2) for _ in range(9)]
    assert pauses == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert backoff.delay_s(10.0) == 0.0
    assert backoff.delay_s(9.9) == 0.1


class Bench:
    """Supervises small programs in a temporary folder."""

    def __init__(self, root: Path, watchdog: Watchdog) -> None:
        self.root = root
        self.watchdog = watchdog
        self.events: list[StackEvent] = []
        self.processes: list[Supervised] = []

    def supervise(self, program: str, stop_timeout_s: float = 10.0) -> Supervised:
        log = self.root / "small.log"

        async def said_here(pid: int) -> bool:
            return f"{pid} here" in log.read_text()

        spec = ProcessSpec(
            name="small",
            argv=(
                sys.executable,
                "-I",
                "-S",
                "-c",
                "import os; print(os.getpid(), end=' ');" + program,
            ),
            env={},
            probe=said_here,
            stop_timeout_s=stop_timeout_s,
        )
        process = Supervised(spec, self.root, self.root, self.watchdog, self.events.append)
        self.processes.append(process)
        return process

    def seen(self) -> list[tuple[str, float]]:
        return [(event.kind, event.delay_s) for event in self.events]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    bench = Bench(tmp_path, await Watchdog.start(tmp_path, lock))
    yield bench
    for process in bench.processes:
        await process.stop()
    await bench.watchdog.finish()


async def test_killed_process_is_restarted_and_its_exit_kept(bench: Bench) -> None:
    process = bench.supervise(RUNNING)
    await process.start()
    await process.wait_ready(10)
    lives: list[int] = []
    for _ in range(2):
        pid = process.send(signal.SIGKILL)
        assert pid is not None
        lives.append(pid)
        await process.exited(pid)
        await process.wait_ready(10)
    assert process.restarts == 2
    assert [(one.pid, one.returncode, one.expected) for one in process.exits] == [
        (pid, -signal.SIGKILL, False) for pid in lives
    ]
    assert bench.seen() == [
        *(("started", 0.0), ("exited", 0.0), ("restarting", 0.0)),
        *(("started", 0.0), ("exited", 0.0), ("restarting", 0.1)),
        ("started", 0.0),
    ]


async def test_stop_is_clean_and_final(bench: Bench) -> None:
    process = bench.supervise(RUNNING)
    await process.start()
    await process.wait_ready(10)
    await process.stop()
    assert process.pid is None and not process.running
    assert [(one.returncode, one.expected) for one in process.exits] == [(-signal.SIGTERM, True)]
    assert process.restarts == 0
    await process.stop()  # again is harmless
    await process.restart()
    await process.wait_ready(10)
    assert process.restarts == 1


async def test_process_that_ignores_its_stop_signal_is_killed(bench: Bench) -> None:
    process = bench.supervise(STUBBORN, stop_timeout_s=0.2)
    await process.start()
    await process.wait_ready(10)
    await process.stop()
    assert process.exits[-1].returncode == -signal.SIGKILL


async def test_process_that_cannot_start_shows_the_end_of_its_log(bench: Bench) -> None:
    process = bench.supervise("raise SystemExit('no such luck')")
    await process.start()
    with pytest.raises(
        ProcessNotReady, match=r"(?s)small died 5 times; last exit: 1.*no such luck"
    ):
        await process.wait_ready(10)


async def test_silent_process_is_reported(bench: Bench) -> None:
    process = bench.supervise("import signal; signal.pause()")
    await process.start()
    with pytest.raises(ProcessNotReady, match="small is not ready after 0 s"):
        await process.wait_ready(0.1)


async def test_ignored_signals_are_not_inherited(bench: Bench) -> None:
    """Python ignores SIGPIPE; a child that inherits that never ends with its pipe's reader."""
    probe = bench.supervise("").spec.probe
    direct = ProcessSpec("direct", ("cat", "/proc/self/status"), {"PATH": os.defpath}, probe)
    child = await spawn(direct, bench.root, bench.root / "direct.log")
    assert await child.wait() == 0
    ignored = int((bench.root / "direct.log").read_text().split("SigIgn:")[1].split()[0], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1)
