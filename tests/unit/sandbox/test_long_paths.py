"""Paths that are too long: each is refused by itself, and none ends a trial."""

from __future__ import annotations

import io
import os
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from support.rootfs import add_file
from trialog.sandbox.bubblewrap.wire import Op
from trialog.sandbox.docker import layer
from trialog.sandbox.errors import SandboxError, SnapshotRefusedError
from trialog.sandbox.images import ImageSandbox, Pulled
from trialog.sandbox.rootfs import state, transfer
from trialog.sandbox.rootfs.unpack import MAX_PATH_BYTES
from trialog.sandbox.trials import left

LIMIT = 1 << 20


def of_length(length: int) -> str:
    """A path of so many bytes, of names that any filesystem takes."""
    return ("a" * 199 + "/") * (length // 200) + "b" * (length % 200)


def sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data + b"\0"


class Inside:
    """A PID 1 that tells of regular files of one byte."""

    def __init__(self, *paths: str) -> None:
        self._paths = paths

    async def ask(self, request: bytes) -> bytes:
        if request[0] == Op.LIST:
            return bytes(1) + struct.pack(">BI", 0, len(self._paths)) + self._listed()
        return bytes(1) + sized(b"x")

    def _listed(self) -> bytes:
        def one(path: str) -> bytes:
            return struct.pack(">cIQ", b"f", 0o644, 1) + sized(path.encode()) + sized(b"")

        return b"".join(map(one, self._paths))

    async def download(
        self, source: str, target: Path, limit_bytes: int, exclude: Sequence[str] = ()
    ) -> Pulled:
        return await transfer.download(self.ask, source, target, limit_bytes, exclude)


async def test_a_path_that_is_too_long_is_refused_alone(tmp_path: Path) -> None:
    long, deep = of_length(3_990), "d/" * 200 + "x"
    pulled = await Inside(long, deep, "kept").download("/logs", tmp_path, LIMIT)
    assert pulled.files == ("kept",)
    assert pulled.refused == ((long, "its path is too long"), (deep, "its path is too long"))


async def test_what_this_hosts_disk_refuses_is_refused_alone(tmp_path: Path) -> None:
    """Here the folder itself lies deep: what is short inside is too long outside."""
    target = tmp_path / of_length(3_790 - len(str(tmp_path)))
    target.mkdir(parents=True)
    pulled = await Inside(of_length(650), "kept").download("/logs", target, LIMIT)
    assert pulled.files == ("kept",)
    assert pulled.refused == ((of_length(650), "it cannot be kept: File name too long"),)


async def test_a_full_disk_of_this_host_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left out for that is not the agent's: the artifact would count as missing."""

    def full(*_: Any) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(transfer, "_Received", full)
    with pytest.raises(SandboxError, match="No space left"):
        await Inside("a").download("/logs", tmp_path, LIMIT)


async def test_a_verifiers_folder_never_costs_its_reward(tmp_path: Path) -> None:
    """Its folder may have the name under which the rest would be told."""
    inside = Inside("left-out.txt/x", of_length(3_000), "test.txt")
    await left.take(cast("ImageSandbox", inside), tmp_path)
    assert (tmp_path / "test.txt").read_bytes() == b"x"


def test_a_record_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "kept").write_bytes(b"x")
    long = tmp_path / "from" / of_length(1_900)
    long.parent.mkdir(parents=True)
    long.write_bytes(b"y")
    into = tmp_path / of_length(2_790 - len(str(tmp_path)))
    into.mkdir(parents=True)
    left.unpack(left.pack(tmp_path / "from"), into)
    assert (into / "kept").read_bytes() == b"x"


def deep_file(top: Path, length: int) -> None:
    """Write a file at a path that is too long to be opened by it."""
    at = os.open(top, os.O_RDONLY)
    *above, name = of_length(length).split("/")
    for part in above:
        os.mkdir(part, dir_fd=at)
        below = os.open(part, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)


def test_what_is_packed_can_be_unpacked(tmp_path: Path) -> None:
    """At the limit it goes in again; above it, it is refused before anything is kept."""
    for name in ("upper", "into", "above"):
        (tmp_path / name).mkdir()
    deep_file(tmp_path / "upper", MAX_PATH_BYTES - 1)
    state.pack(tmp_path / "upper", tmp_path / "state", LIMIT)
    state.unpack([tmp_path / "state"], tmp_path / "into")
    deep_file(tmp_path / "above", MAX_PATH_BYTES + 1)
    with pytest.raises(SnapshotRefusedError, match="a path is longer than 4000 bytes"):
        state.pack(tmp_path / "above", tmp_path / "none", LIMIT)
    assert not (tmp_path / "none").exists()


def test_a_daemons_layer_is_refused_as_an_upper_folder_is(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        add_file(archive, of_length(MAX_PATH_BYTES + 1), b"")
    out.seek(0)
    with tarfile.open(fileobj=out) as archive, pytest.raises(SnapshotRefusedError):
        layer.to_state(archive, tmp_path / "state", LIMIT)
