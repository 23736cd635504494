"""However the stack's process ends, nothing of it is left; and a later start recovers."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import psutil
import pytest
from integration.stack.observed import handles, parts_of, survivors
from trialog.cli.stack import Stack, StackOptions
from trialog.cli.stack.reaper import find

pytestmark = pytest.mark.stack
HOLD = Path(__file__).with_name("hold_stack.py")
NOBODY = 65_534


@dataclass
class Held:
    process: asyncio.subprocess.Process
    root: Path
    pids: dict[str, int]

    def everything(self) -> list[psutil.Process]:
        """All live processes of the stack: its own, their descendants and the watchdog."""
        top = psutil.Process(self.process.pid)
        found = {one.pid for one in find(self.root)} | {p.pid for p in top.children(recursive=True)}
        assert set(self.pids.values()) < found  # and at least the watchdog and Postgres' backends
        return handles(found)


@asynccontextmanager
async def held(**options: object) -> AsyncGenerator[Held]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(HOLD), json.dumps({"with_services": False, **options})),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            _, errors = await process.communicate()
            pytest.fail(errors.decode())
        said = json.loads(line)
        yield Held(process, Path(said["root"]), said["pids"])
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def sockets_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_socket()]


async def may_reach(uid: int, path: Path) -> bool:
    """Say whether a user sees what is at a path."""
    looking = await asyncio.create_subprocess_exec(
        *("stat", str(path)),
        user=uid,
        group=uid,
        extra_groups=[],
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await looking.wait() == 0


@pytest.mark.slow
async def test_killed_stack_leaves_no_process_and_no_folder() -> None:
    async with held(with_ray=True) as stack:
        ray_folder = Path((stack.root / "ray-folder").read_text())
        processes = stack.everything()
        assert len(processes) > 15
        sockets = sockets_in(ray_folder)
        assert sockets
        if os.geteuid() == 0:
            assert [one for one in sockets if await may_reach(NOBODY, one)] == []
        stack.process.kill()
        await stack.process.wait()
        assert await survivors(processes) == []
        # The watchdog was among them, and it removes the folders before it ends.
        assert not any(folder.exists() for folder in (stack.root, ray_folder))
        assert find(stack.root) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signal_stops_cleanly(number: signal.Signals) -> None:
    async with held(with_ray=False) as stack:
        processes = stack.everything()
        stack.process.send_signal(number)
        output, errors = await stack.process.communicate()
        assert (json.loads(output), errors) == ({"stopped": number}, b"")
        assert stack.process.returncode == 0
        assert await survivors(processes) == []
        assert not stack.root.exists()


async def test_start_after_a_kill_recovers_data_and_ports(tmp_path: Path) -> None:
    async with held(with_ray=False, data_dir=str(tmp_path)) as stack:
        stack.process.kill()
        await stack.process.wait()
        # At once, while the watchdog still cleans up: the new start waits for it.
        options = StackOptions(data_dir=tmp_path, with_ray=False, with_services=False)
        async with Stack(options) as second:
            connection = await asyncpg.connect(second.admin_database_url)
            assert await connection.fetchval("select 1") == 1
            await connection.close()
            ports = json.loads((tmp_path / "ports.json").read_text())
            assert f":{ports['postgres']}/" in second.admin_database_url


async def test_start_ends_what_a_killed_watchdog_left(tmp_path: Path) -> None:
    async with held(with_ray=False, data_dir=str(tmp_path)) as stack:
        processes = stack.everything()
        (watchdog,) = [p for p in processes if "reaper.py" in " ".join(p.cmdline())]
        stranger = await asyncio.create_subprocess_exec(
            # Cut off from its parents, as Ray's workers may be: only its mark betrays it.
            *("setsid", "--fork", "sleep", "600"),
            env={"TRIALOG_STACK": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )
        await stranger.wait()
        left = [p for p in find(tmp_path) if p.pid not in {q.pid for q in processes}]
        assert len(left) == 1
        watchdog.kill()
        stack.process.kill()
        await stack.process.wait()
        assert psutil.Process(left[0].pid).is_running()
        async with Stack(
            StackOptions(data_dir=tmp_path, with_ray=False, with_services=False)
        ) as second:
            assert second.processes["postgres"].pid
            assert not psutil.pid_exists(left[0].pid) or (
                psutil.Process(left[0].pid).status() == psutil.STATUS_ZOMBIE
            )
        assert await survivors(processes) == []


async def test_second_start_names_the_first(tmp_path: Path) -> None:
    async with held(with_ray=False, data_dir=str(tmp_path)) as stack:
        second = await asyncio.create_subprocess_exec(
            *(sys.executable, str(HOLD)),
            json.dumps({"with_ray": False, "with_services": False, "data_dir": str(tmp_path)}),
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await second.communicate()
        assert second.returncode == 1
        assert f"StackInUse: a stack already runs on {tmp_path} (pid {stack.process.pid})" in (
            errors.decode()
        )
        assert await survivors(stack.everything(), timeout_s=0.1) != []


@pytest.mark.slow
async def test_no_part_of_ray_outlives_its_head() -> None:
    async with Stack(StackOptions(with_services=False)) as stack:
        await stack.ready()
        for _ in range(3):  # the head's own reaper races with ours
            parts = parts_of(stack.layout.root, "ray")
            assert parts
            pid = stack.kill("ray")
            assert pid is not None
            await stack.exited("ray", pid)
            await stack.ready()
            assert await survivors(parts, timeout_s=0.1) == []
        assert stack.processes["ray"].restarts == 3


@pytest.mark.slow
async def test_two_stacks_with_ray_side_by_side() -> None:
    options = StackOptions(with_services=False)
    async with Stack(options) as one, Stack(options) as other:
        await asyncio.gather(one.ready(), other.ready())
        assert one.ray_env["TRIALOG_RAY_ADDRESS"] != other.ray_env["TRIALOG_RAY_ADDRESS"]
        await one.restart_infrastructure("ray")
        assert other.processes["ray"].restarts == 0
        assert other.exits == []
