"""The folder of large blobs when it cannot be written: nothing half done, nothing thrown away."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest
from support.waiting import eventually
from trialog.spine.blobs import BlobsUnavailableError, PostgresBlobs, sweep
from trialog.spine.database import Database

LARGE = b"x" * 100_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is none: a file stands in its place, which stops root too."""
    place = tmp_path / "blobs"
    place.write_text("not a folder")
    return place


async def test_what_is_put_is_refused_at_once(database: Database, folder: Path) -> None:
    blobs = PostgresBlobs(database, folder)
    with pytest.raises(BlobsUnavailableError, match="blobs cannot be written"):
        await blobs.put(LARGE)
    folder.unlink()
    digest = await blobs.put(LARGE)
    assert await PostgresBlobs(database, folder).get(digest) == LARGE


async def test_what_was_paid_for_waits_until_it_can_be_kept(
    database: Database, folder: Path
) -> None:
    blobs = PostgresBlobs(database, folder)
    staging = asyncio.create_task(blobs.stage(LARGE))
    with pytest.raises(BlobsUnavailableError):
        await blobs.put(LARGE)
    assert not staging.done()
    folder.unlink()
    digest, inline = await staging
    assert inline == []
    assert await PostgresBlobs(database, folder).get(digest) == LARGE


async def test_a_write_that_fails_leaves_no_file_behind(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    blobs = PostgresBlobs(database, tmp_path)
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BlobsUnavailableError, match="No space left"):
        await blobs.put(LARGE)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_a_folder_that_went_is_made_again(database: Database, tmp_path: Path) -> None:
    blobs = PostgresBlobs(database, tmp_path / "blobs")
    await blobs.put(LARGE)
    shutil.rmtree(tmp_path / "blobs")
    digest = await blobs.put(LARGE + b"y")

    async def kept() -> bool:
        return (await PostgresBlobs(database, tmp_path / "blobs").get(digest)) == LARGE + b"y"

    assert await eventually(kept)


def test_what_a_killed_writer_left_is_removed_once_it_is_old(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    old, fresh = tmp_path / "new" / "old", tmp_path / "new" / "fresh"
    for path in (old, fresh):
        path.write_bytes(b"half")
    an_hour_ago = time.time() - 3700
    os.utime(old, (an_hour_ago, an_hour_ago))
    assert sweep(tmp_path) == 1
    assert not old.exists() and fresh.exists(), "it may be written at this moment"
