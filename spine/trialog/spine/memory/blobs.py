"""The blob store in memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from pathlib import Path

from trialog.spine.blobs import BlobMissingError
from trialog.spine.log import MAX_INLINE_BLOB_BYTES
from trialog.spine.memory.store import MemoryStore


class MemoryBlobs:
    """Bytes by digest, in the store that the members' own blobs go to."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self._store = store or MemoryStore()

    async def put(self, data: bytes) -> str:
        """Keep the bytes and return their digest."""
        digest = hashlib.sha256(data).hexdigest()
        self._store.blobs[digest] = data
        return digest

    async def stage(self, data: bytes) -> tuple[str, list[bytes]]:
        """Return the digest, and the bytes when they are small enough to ride in the member."""
        if len(data) <= MAX_INLINE_BLOB_BYTES:
            return hashlib.sha256(data).hexdigest(), [data]
        return await self.put(data), []

    async def stage_file(self, path: Path) -> tuple[str, list[bytes]]:
        """Stage a file's bytes."""
        return await self.stage(await asyncio.to_thread(path.read_bytes))

    async def fetch(self, digest: str, path: Path) -> None:
        """Write the bytes of a digest to a new file. Raises BlobMissingError."""
        await asyncio.to_thread(path.write_bytes, await self.get(digest))

    async def get(self, digest: str) -> bytes:
        """Return the bytes of a digest. Raises BlobMissingError."""
        return (await self.get_many([digest]))[digest]

    async def get_many(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Return the bytes of each digest. Raises BlobMissingError for the first that is not."""
        found: dict[str, bytes] = {}
        for digest in digests:
            if digest not in self._store.blobs:
                raise BlobMissingError(f"no blob {digest}")
            found[digest] = self._store.blobs[digest]
        return found
