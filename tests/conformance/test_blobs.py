"""The blob store, in memory and in Postgres with its folder."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tracemalloc
from pathlib import Path

import pytest
from support.logs import Ledger, PostgresLedger
from support.stack import StackThread
from trialog.spine.blobs import BlobMissingError, PostgresBlobs
from trialog.spine.database import connect
from trialog.spine.log import MAX_INLINE_BLOB_BYTES

SIZES = [0, 1, 2000, MAX_INLINE_BLOB_BYTES, MAX_INLINE_BLOB_BYTES + 1, 3_000_000]


def fresh(ledger: Ledger) -> PostgresBlobs:
    """Return another process's view of the same store: nothing is in its cache."""
    assert isinstance(ledger, PostgresLedger)
    return PostgresBlobs(ledger.blobs._database, ledger.blobs._folder)


@pytest.mark.parametrize("size", SIZES)
async def test_bytes_are_kept_under_their_digest(ledger: Ledger, size: int) -> None:
    data = os.urandom(size)
    digest = await ledger.blobs.put(data)
    assert digest == hashlib.sha256(data).hexdigest()
    assert await ledger.blobs.put(data) == digest
    assert await ledger.blobs.get(digest) == data
    if isinstance(ledger, PostgresLedger):
        assert await fresh(ledger).get(digest) == data
        assert (ledger.blobs._folder / digest[:2] / digest).exists() == (
            size > MAX_INLINE_BLOB_BYTES
        )


async def test_small_bytes_ride_with_their_member_and_large_ones_go_ahead(ledger: Ledger) -> None:
    small, large = os.urandom(2000), os.urandom(MAX_INLINE_BLOB_BYTES + 1)
    digest, inline = await ledger.blobs.stage(small)
    assert inline == [small]
    assert not await ledger.holds_blob(digest)
    digest, inline = await ledger.blobs.stage(large)
    assert inline == []
    assert await ledger.holds_blob(digest)


@pytest.mark.parametrize("size", SIZES)
async def test_a_file_is_kept_and_had_back_as_one(
    ledger: Ledger, size: int, tmp_path: Path
) -> None:
    """Small ones ride with their member, large ones are there when they are named."""
    data = os.urandom(size)
    given, had = tmp_path / "given", tmp_path / "had"
    given.write_bytes(data)
    digest, inline = await ledger.blobs.stage_file(given)
    assert digest == hashlib.sha256(data).hexdigest()
    assert inline == ([data] if size <= MAX_INLINE_BLOB_BYTES else [])
    for bytes_ in inline:
        await ledger.blobs.put(bytes_)
    assert (await ledger.blobs.stage_file(given))[0] == digest
    assert given.read_bytes() == data
    await ledger.blobs.fetch(digest, had)
    assert had.read_bytes() == data
    if isinstance(ledger, PostgresLedger):
        await fresh(ledger).fetch(digest, had)
        assert had.read_bytes() == data
        assert await fresh(ledger).get(digest) == data
        left = [path.name for path in ledger.blobs._folder.glob("new/*")]
        assert left == []


async def test_a_large_file_never_lies_in_memory(
    real_ledger: PostgresLedger, tmp_path: Path
) -> None:
    given, had = tmp_path / "given", tmp_path / "had"
    with given.open("wb") as file:
        file.truncate(200_000_000)
    tracemalloc.start()
    try:
        digest, _ = await real_ledger.blobs.stage_file(given)
        await fresh(real_ledger).fetch(digest, had)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert had.stat().st_size == 200_000_000
    assert peak < 10_000_000


@pytest.mark.parametrize("harm", ["cut", "changed"])
async def test_a_damaged_file_is_not_had_as_one(
    real_ledger: PostgresLedger, harm: str, tmp_path: Path
) -> None:
    data = os.urandom(100_000)
    digest = await real_ledger.blobs.put(data)
    path = real_ledger.blobs._folder / digest[:2] / digest
    path.write_bytes({"cut": data[:-1], "changed": b"x" + data[1:]}[harm])
    with pytest.raises(BlobMissingError, match="damaged"):
        await fresh(real_ledger).fetch(digest, tmp_path / "had")
    assert not (tmp_path / "had").exists()


@pytest.mark.parametrize("name", ["0" * 64, "", "../../etc/passwd", "A" * 64])
async def test_what_nobody_kept_is_missing_as_a_file(
    ledger: Ledger, name: str, tmp_path: Path
) -> None:
    with pytest.raises(BlobMissingError):
        await ledger.blobs.fetch(name, tmp_path / "had")
    assert not (tmp_path / "had").exists()


async def test_a_file_that_cannot_be_read_is_not_waited_for(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await ledger.blobs.stage_file(tmp_path / "missing")


async def test_many_are_had_at_once(ledger: Ledger) -> None:
    kept = [os.urandom(size) for size in (10, 2000, MAX_INLINE_BLOB_BYTES + 7)]
    digests = [await ledger.blobs.put(data) for data in kept]
    assert await ledger.blobs.get_many([*digests, digests[0]]) == dict(
        zip(digests, kept, strict=True)
    )
    assert await ledger.blobs.get_many([]) == {}


@pytest.mark.parametrize("name", ["0" * 64, "", "zz", "../../etc/passwd", "0" * 63 + "G", "A" * 64])
async def test_what_nobody_put_is_missing(ledger: Ledger, name: str) -> None:
    with pytest.raises(BlobMissingError):
        await ledger.blobs.get(name)


async def test_one_that_is_missing_fails_the_many(ledger: Ledger) -> None:
    digest = await ledger.blobs.put(b"there")
    with pytest.raises(BlobMissingError):
        await ledger.blobs.get_many([digest, "0" * 64])


async def test_the_same_bytes_put_by_many_at_once_are_one(ledger: Ledger) -> None:
    for data in (os.urandom(100), os.urandom(100_000)):
        digests = await asyncio.gather(*(ledger.blobs.put(data) for _ in range(8)))
        assert len(set(digests)) == 1
        assert await ledger.blobs.get(digests[0]) == data


@pytest.mark.parametrize("harm", ["cut", "changed", "emptied"])
async def test_a_damaged_file_is_not_taken_for_its_bytes(
    real_ledger: PostgresLedger, harm: str
) -> None:
    data = os.urandom(100_000)
    digest = await real_ledger.blobs.put(data)
    path = real_ledger.blobs._folder / digest[:2] / digest
    harmed = {"cut": data[:-1], "changed": b"x" + data[1:], "emptied": b""}[harm]
    path.write_bytes(harmed)
    with pytest.raises(BlobMissingError, match="damaged"):
        await fresh(real_ledger).get(digest)


async def test_a_damaged_row_is_not_taken_for_its_bytes(
    real_ledger: PostgresLedger, stack: StackThread
) -> None:
    digest = await real_ledger.blobs.put(os.urandom(100))
    admin = await connect(stack.admin_database_url)
    await admin.execute("update blob set bytes = 'x' where digest = $1", bytes.fromhex(digest))
    await admin.close()
    with pytest.raises(BlobMissingError, match="damaged"):
        await fresh(real_ledger).get(digest)


async def test_a_write_that_broke_off_leaves_no_name(real_ledger: PostgresLedger) -> None:
    """A name appears with all of its bytes or not at all, whatever lies beside it."""
    data = os.urandom(100_000)
    digest = hashlib.sha256(data).hexdigest()
    folder = real_ledger.blobs._folder / digest[:2]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tmpbroken").write_bytes(data[:500])
    with pytest.raises(BlobMissingError):
        await fresh(real_ledger).get(digest)
    assert await fresh(real_ledger).put(data) == digest
    assert await fresh(real_ledger).get(digest) == data
