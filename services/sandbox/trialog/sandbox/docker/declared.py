"""Bases that a run declares itself: a root filesystem's tar or an OCI layout, imported once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

from trialog.sandbox.docker.daemon import Daemon, DaemonError
from trialog.sandbox.errors import ImageError

REPOSITORY = "trialog/base"
_PATH = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHUNK_BYTES = 4 << 20


class Imported:
    """Imports what ``images`` of a run declares, under a tag of its content's digest."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._digests: dict[tuple[str, int, int], str] = {}

    async def name(self, name: str, source: str) -> str:
        """Return the daemon's name of a declared base. Raises ImageError."""
        kind, _, path = source.partition(":")
        if kind != "tar":
            raise ImageError(
                f"image {name} is declared as {source!r}, which the docker provider does not take: "
                "declare a root filesystem as tar:PATH, or leave it to the daemon"
            )
        try:
            digest = await asyncio.to_thread(self._digest, Path(path))
            return await self._import(Path(path), digest)
        except OSError as error:
            raise ImageError(f"image {name}: {path} cannot be read: {error}") from error

    async def _import(self, path: Path, digest: str) -> str:
        tagged = f"{REPOSITORY}:{digest}"
        try:
            await self._daemon.ask("GET", f"/images/{tagged}/json")
        except DaemonError as error:
            if error.status != 404:
                raise
        else:
            return tagged
        params = {"fromSrc": "-", "repo": REPOSITORY, "tag": digest, "changes": _PATH}
        async for said in self._daemon.lines("/images/create", params=params, content=_read(path)):
            if "error" in said:
                raise ImageError(f"{path} cannot be imported: {said['error']}")
        return tagged

    def _digest(self, path: Path) -> str:
        """Digest a file; one that looks the same as before is not read again."""
        info = path.stat()
        key = (str(path), info.st_size, info.st_mtime_ns)
        if key not in self._digests:
            with path.open("rb") as file:
                self._digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._digests[key]


async def _read(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
            yield chunk
