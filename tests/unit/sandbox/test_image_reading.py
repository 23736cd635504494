"""What ``images`` of a run name is read only where it ends, and only while a build waits for it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from pathlib import Path

import pytest
from trialog.sandbox.errors import ImageError
from trialog.sandbox.rootfs import bases, oci, reading


def resolved(source: str) -> bases.Base:
    return bases.resolve("base", {"base": source})


def test_a_device_is_no_archive() -> None:
    with pytest.raises(ImageError, match="image 'base': /dev/zero is not a regular file"):
        resolved("tar:/dev/zero")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ImageError, match="not a regular file"):
        resolved(f"tar:{tmp_path}/pipe")


@pytest.mark.parametrize("name", ["index.json", "blobs"])
def test_no_part_of_a_layout_is_a_device(tmp_path: Path, name: str) -> None:
    digest = "a" * 64
    described = f'{{"manifests": [{{"digest": "sha256:{digest}"}}]}}'
    (tmp_path / "blobs/sha256").mkdir(parents=True)
    if name == "index.json":
        (tmp_path / "index.json").symlink_to("/dev/zero")
    else:
        (tmp_path / "index.json").write_text(described)
        (tmp_path / "blobs/sha256" / digest).symlink_to("/dev/zero")
    with pytest.raises(ImageError, match="not a regular file"):
        oci.settings(tmp_path, "")


def test_what_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(reading.MAX_BYTES + 1)
    with pytest.raises(ImageError, match=f"above {reading.MAX_BYTES} bytes"):
        resolved(f"tar:{tmp_path}/large")
    (tmp_path / "index.json").write_bytes(b" " * ((8 << 20) + 1))
    with pytest.raises(ImageError, match="above 8388608 bytes"):
        oci.identity(tmp_path, "")


def test_a_file_is_digested_as_it_is(tmp_path: Path) -> None:
    data = b"x" * ((3 << 20) + 1)
    (tmp_path / "file").write_bytes(data)
    assert resolved(f"tar:{tmp_path}/file").identity == hashlib.sha256(data).hexdigest()
    assert reading.text(tmp_path / "file", len(data)) == data.decode()


def endless(path: Path, begun: threading.Event, ended: threading.Event) -> None:
    """Read a file again and again, as a large one would be."""
    begun.set()
    try:
        while True:
            reading.sha256(path)
    finally:
        ended.set()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small").write_bytes(b"x")
    return tmp_path / "small"


async def test_reading_ends_with_the_build_that_waits_for_it(small: Path) -> None:
    begun, ended = threading.Event(), threading.Event()
    work = asyncio.create_task(reading.in_thread(60.0, endless, small, begun, ended))
    assert await asyncio.to_thread(begun.wait, 10.0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert await asyncio.to_thread(ended.wait, 10.0)


async def test_reading_ends_when_the_build_is_over_its_time(small: Path) -> None:
    with pytest.raises(ImageError, match=r"took longer than 0\.05 s"):
        await reading.in_thread(0.05, endless, small, threading.Event(), threading.Event())


async def test_builds_leave_the_shared_threads_alone(small: Path) -> None:
    """However many read, a thread of everybody's is free at once."""
    begun: list[threading.Event] = [threading.Event() for _ in range(40)]
    works = [
        asyncio.create_task(reading.in_thread(60.0, endless, small, one, threading.Event()))
        for one in begun
    ]
    assert await asyncio.to_thread(begun[0].wait, 10.0)
    async with asyncio.timeout(10.0):
        assert await asyncio.to_thread(threading.current_thread) is not None
    for work in works:
        work.cancel()
    found = await asyncio.gather(*works, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in found)
