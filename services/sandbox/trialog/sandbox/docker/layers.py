"""What a container wrote, through the daemon's interface alone: slower, and for every user.

To save, the container is made an image, whose last layer is taken out of the daemon's archive of
it. To begin with a state, deletions are made by PID 1's binary, and the daemon unpacks the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from trialog.sandbox.docker import context, mounted
from trialog.sandbox.docker.daemon import Daemon, DaemonError
from trialog.sandbox.docker.disk import RunInit
from trialog.sandbox.docker.layer import changes_of, to_state
from trialog.sandbox.errors import ImageError, ProviderUnavailableError, SandboxGoneError
from trialog.sandbox.rootfs.state import Instead
from trialog.sandbox.snapshot import Snapshot


class Layers:
    """The upper layer of one container, which only the daemon may read."""

    def __init__(self, daemon: Daemon, container: str, limit_bytes: int) -> None:
        self._daemon = daemon
        self._container = container
        self._limit_bytes = limit_bytes

    async def before_start(self, states: Sequence[Path]) -> None:
        """Nothing can be done yet: a layer's deletions are refused in a mounted overlay."""

    async def after_start(self, states: Sequence[Path], run_init: RunInit) -> None:
        """Delete and unpack, state by state; see ``Disk``."""
        for number, path in enumerate(states):
            with tempfile.TemporaryFile() as rest:
                try:
                    deleted = await asyncio.to_thread(changes_of, path, rest, mounted.NAMES)
                except (tarfile.TarError, OSError, EOFError, KeyError) as error:
                    raise ImageError(f"state {path} cannot be unpacked: {error}") from error
                paths = b"".join(
                    b"/" + name.encode("utf-8", "surrogateescape") + b"\0" for name in deleted
                )
                done = await run_init(f"trialog-remove-{number}", ["remove"], paths)
                if done.exit_code != 0:
                    said = done.stderr.decode("utf-8", "replace").strip()
                    raise ImageError(f"state {path} cannot be laid over the image: {said}")
                await self._unpack(path, rest)

    async def _unpack(self, path: Path, rest: IO[bytes]) -> None:
        try:
            await self._daemon.put(
                f"/containers/{self._container}/archive", {"path": "/"}, context.chunks(rest)
            )
        except DaemonError as error:
            raise ImageError(f"state {path} cannot be unpacked: {error}") from error

    async def save(self, target: Path, limit_bytes: int, instead: Instead) -> Snapshot:
        """Take the last layer of an image made of the container; see ``Disk``."""
        with tempfile.TemporaryFile(dir=target.parent) as archive:
            await self._fetch(archive)
            return await asyncio.to_thread(_to_state, archive, target, limit_bytes, instead)

    async def _fetch(self, archive: IO[bytes]) -> None:
        try:
            params = {"container": self._container, "pause": "false"}
            made = (await self._daemon.ask("POST", "/commit", params=params, body={}))["Id"]
            try:
                async with contextlib.aclosing(self._daemon.stream(f"/images/{made}/get")) as image:
                    async for chunk in image:
                        await asyncio.to_thread(archive.write, chunk)
            finally:
                await asyncio.shield(self._forget(made))
        except DaemonError as error:
            raise SandboxGoneError(f"the container cannot be saved: {error}") from error

    async def _forget(self, image: str) -> None:
        with contextlib.suppress(DaemonError):
            await self._daemon.ask("DELETE", f"/images/{image}", params={"force": "true"})

    async def too_much(self, beside_bytes: int) -> bool:
        """Let the daemon measure; see ``Disk``."""
        path = f"/containers/{self._container}/json"
        # It is gone, and so is what it wrote; or the daemon is, for now.
        with contextlib.suppress(DaemonError, ProviderUnavailableError):
            seen = await self._daemon.ask("GET", path, params={"size": "true"})
            return int(seen.get("SizeRw") or 0) + beside_bytes > self._limit_bytes
        return False


def _to_state(archive: IO[bytes], target: Path, limit_bytes: int, instead: Instead) -> Snapshot:
    archive.seek(0)
    with tarfile.open(fileobj=archive) as image:
        manifest = json.load(_file(image, "manifest.json"))[0]
        # Where nothing was written there is no layer: the last one is the image's own.
        history = json.load(_file(image, manifest["Config"]))["history"]
        written = not history[-1].get("empty_layer")
        layer = _file(image, manifest["Layers"][-1]) if written else _nothing()
        with layer, tarfile.open(fileobj=layer) as content:
            return to_state(content, target, limit_bytes, instead)


def _file(image: tarfile.TarFile, name: str) -> IO[bytes]:
    found = image.extractfile(name)
    assert found is not None, f"the daemon's archive of an image has {name}"
    return found


def _nothing() -> IO[bytes]:
    return io.BytesIO(bytes(tarfile.RECORDSIZE))
