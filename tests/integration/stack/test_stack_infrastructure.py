"""Postgres and NATS of the embedded stack: start, credentials, recovery, a clean end."""

import signal
from pathlib import Path

import asyncpg
import nats
import pytest
from trialog.cli.stack import Stack, StackInUse, StackOptions, UnknownProcess
from trialog.cli.stack.reaper import find

pytestmark = pytest.mark.stack


def infrastructure(data_dir: Path | None = None) -> StackOptions:
    return StackOptions(data_dir=data_dir, with_ray=False, with_services=False)


async def test_both_answer_with_credentials_and_leave_nothing() -> None:
    async with Stack(infrastructure()) as stack:
        root = stack.layout.root
        connection = await asyncpg.connect(stack.admin_database_url)
        assert await connection.fetchval("show fsync") == "on"
        assert await connection.fetchval("show synchronous_commit") == "on"
        await connection.close()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(stack.admin_database_url, password="wrong")
        bus = await nats.connect(stack.nats_url)
        await bus.jetstream().account_info()
        await bus.close()
        assert (root / "credentials").stat().st_mode & 0o777 == 0o600
    assert not root.exists()
    assert find(root) == []


async def test_infrastructure_that_dies_comes_back_with_its_data() -> None:
    async with Stack(infrastructure()) as stack:
        connection = await asyncpg.connect(stack.admin_database_url)
        await connection.execute("create table kept as select 7 as n")
        await connection.close()
        before = stack.processes
        for name in ("postgres", "nats"):
            pid = stack.kill(name, signal.SIGKILL)
            assert pid is not None and pid == before[name].pid
            await stack.exited(name, pid)
        await stack.ready()
        connection = await asyncpg.connect(stack.admin_database_url)
        assert await connection.fetchval("select n from kept") == 7
        await connection.close()
        assert [(one.name, one.returncode) for one in stack.exits] == [
            ("postgres", -signal.SIGKILL),
            ("nats", -signal.SIGKILL),
        ]
        assert all(state.restarts == 1 for state in stack.processes.values())


async def test_wiped_bus_is_empty_and_keeps_its_address() -> None:
    async with Stack(infrastructure()) as stack:
        address = stack.nats_url
        bus = await nats.connect(address)
        await bus.jetstream().add_stream(name="WORK", subjects=["work.>"])
        await bus.close()
        await stack.restart_infrastructure("nats", wipe=True)
        assert stack.nats_url == address
        bus = await nats.connect(address)
        assert (await bus.jetstream().account_info()).streams == 0
        await bus.close()
        with pytest.raises(UnknownProcess, match="redis"):
            await stack.restart_infrastructure("redis")


async def test_kept_folder_keeps_data_ports_and_secrets(tmp_path: Path) -> None:
    async with Stack(infrastructure(tmp_path / "data")) as stack:
        urls = stack.admin_database_url, stack.nats_url
        with pytest.raises(StackInUse, match="already runs"):
            async with Stack(infrastructure(tmp_path / "data")):
                pass
        assert find(stack.layout.root)  # the refused one has ended none of ours
    async with Stack(infrastructure(tmp_path / "data")) as stack:
        assert (stack.admin_database_url, stack.nats_url) == urls
