"""A sandbox over a reference world."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from trialog.sandbox.bubblewrap import overlay, wire
from trialog.sandbox.bubblewrap.living import Living
from trialog.sandbox.provider import (
    DEFAULT_TIMEOUT_S,
    WORLD,
    ExecResult,
    check_exec_id,
    inside,
)
from trialog.sandbox.snapshot import Snapshot

_DISK_LOOK_S = 0.25
_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": WORLD,
    "LANG": "C.UTF-8",
    "USER": "root",
}


class BubblewrapSandbox(Living):
    """A fork of a reference world."""

    async def exec(
        self,
        exec_id: str,
        argv: Sequence[str],
        *,
        cwd: str = WORLD,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        output_limit_bytes: int | None = None,
    ) -> ExecResult:
        """Run a command once per exec id; see the seam."""
        limit = self.limits.output_bytes
        request = wire.exec_request(
            check_exec_id(exec_id),
            argv,
            cwd=inside(cwd),
            env={**_ENV, **(env or {})},
            stdin=stdin,
            timeout_s=timeout_s,
            output_limit_bytes=limit if output_limit_bytes is None else output_limit_bytes,
        )
        asking = asyncio.ensure_future(self._ask(request))
        try:
            over_disk = await self._watch_disk(asking)
            result = wire.exec_result(await asking)
        finally:
            asking.cancel()
        if not over_disk:
            return result
        return ExecResult(
            result.exit_code, result.stdout, result.stderr, result.truncated, limit="disk"
        )

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """Return a regular file's bytes; see the seam."""
        full = inside(path)
        return wire.file_bytes(path, await self._ask(wire.read_request(full, limit_bytes)))

    async def write(self, path: str, data: bytes) -> None:
        """Put a file in place; see the seam."""
        wire.file_bytes(path, await self._ask(wire.write_request(inside(path), data)))

    async def snapshot(self) -> Snapshot:
        """Kill everything inside and read the overlay's upper folder."""
        await self.kill_all()
        return await asyncio.to_thread(overlay.take, self._home.upper, self.limits.disk_bytes)

    async def _watch_disk(self, asking: asyncio.Future[bytes]) -> bool:
        """Wait for a command; kill all when what it wrote goes over the limit. True if so.

        ext4 has no quota for a folder: between two looks a command can write more than it may.
        """
        while True:
            done, _ = await asyncio.wait([asking], timeout=_DISK_LOOK_S)
            if done:
                return False
            used = await asyncio.to_thread(overlay.usage, self._home.upper)
            unlinked = wire.unlinked_bytes(await self._ask(bytes([wire.Op.UNLINKED])))
            used_bytes = used.disk_bytes + unlinked
            if used_bytes > self.limits.disk_bytes or used.entries > overlay.MAX_ENTRIES:
                await self.kill_all()
                return True
