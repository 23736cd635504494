"""Bases that a run declares itself: a root filesystem's tar or an OCI layout, imported once."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from trialog.sandbox.docker import context
from trialog.sandbox.docker.daemon import Daemon, DaemonError
from trialog.sandbox.errors import ImageError
from trialog.sandbox.rootfs import bases, oci, reading

REPOSITORY = "trialog/base"
_PATH = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHUNK_BYTES = 4 << 20


class Declared:
    """Imports what ``images`` of a run declares, under a tag of its content's digest.

    Under a name of our own: what the daemon has under the Dockerfile's name is somebody else's.
    """

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    async def name(self, name: str, images: dict[str, str], timeout_s: float) -> str:
        """Return the daemon's name of a base. Raises ImageError."""
        base = await reading.in_thread(timeout_s, bases.resolve, name, images)
        tagged = f"{REPOSITORY}:{base.identity}"
        if base.path is None:
            raise ImageError(
                f"image {name} is declared as {base.kind!r}, which the docker provider does not "
                "take: declare it as tar:PATH or oci:PATH, or leave it to the daemon"
            )
        try:
            if await self._is_there(tagged):
                return tagged
            if base.kind == "tar":
                await self._import(base.path, base.identity)
            else:
                await self._load(base.path, base.tag, tagged, timeout_s)
        except (OSError, DaemonError) as error:
            raise ImageError(f"image {name}: {base.path} cannot be imported: {error}") from error
        return tagged

    async def _is_there(self, tagged: str) -> bool:
        try:
            await self._daemon.ask("GET", f"/images/{tagged}/json")
        except DaemonError as error:
            if error.status != 404:
                raise
            return False
        return True

    async def _import(self, path: Path, identity: str) -> None:
        params = {"fromSrc": "-", "repo": REPOSITORY, "tag": identity, "changes": _PATH}
        await self._daemon.do("/images/create", params, _read(path))

    async def _load(self, layout: Path, tag: str, tagged: str, timeout_s: float) -> None:
        with tempfile.TemporaryFile() as archive:
            await reading.in_thread(timeout_s, _pack, layout, tag, tagged, archive)
            await self._daemon.do("/images/load", {"quiet": "true"}, context.chunks(archive))


def _pack(layout: Path, tag: str, tagged: str, out: IO[bytes]) -> None:
    """Write an image of a layout as ``docker save`` does. Its layers may stay compressed."""
    config, layers = oci.blobs(layout, tag)
    listed = [{"Config": config.name, "RepoTags": [tagged], "Layers": [b.name for b in layers]}]
    manifest = json.dumps(listed).encode()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for blob in dict.fromkeys((config, *layers)):
            archive.add(blob, blob.name)
        member = tarfile.TarInfo("manifest.json")
        member.size = len(manifest)
        archive.addfile(member, io.BytesIO(manifest))


async def _read(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(reading.regular, path) as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
            yield chunk
