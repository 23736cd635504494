"""Both clients upload tasks: whole, again where the driver does not answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fake_api import FakeDriver, Served, serve
from support.task_folders import archived
from trialog.client import AsyncTrialogClient, Patience, TrialogClient


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(FakeDriver()) as server:
        yield server


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of several pieces."""
    file = tmp_path / "tasks.tar"
    file.write_bytes(archived("a", changes={"tests/data": os.urandom(3_000_000)}))
    return file


def test_an_archive_is_uploaded_whole_and_again(served: Served, archive: Path) -> None:
    served.driver.failures = [503]
    with TrialogClient(served.url, patience=Patience(10)) as client:
        kept = client.upload_tasks(archive)
    assert served.driver.tasks.archives == [archive.read_bytes()]
    assert [one["task"] for one in kept["tasks"]] == ["a"]
    (first, second) = served.driver.seen("PUT", "/task-archives")
    assert first["content-length"] == second["content-length"] == str(archive.stat().st_size)
    assert second["content-type"] == "application/octet-stream"


async def test_so_does_the_asynchronous_client(served: Served, archive: Path) -> None:
    served.driver.failures = [503]
    async with AsyncTrialogClient(served.url, patience=Patience(10)) as client:
        kept = await client.upload_tasks(str(archive))
    assert served.driver.tasks.archives == [archive.read_bytes()]
    assert len(kept["archive"]) == 64


def test_an_archive_that_is_not_there_is_said(served: Served, tmp_path: Path) -> None:
    with (
        TrialogClient(served.url) as client,
        pytest.raises(FileNotFoundError),
    ):
        client.upload_tasks(tmp_path / "nothing.tar")
