"""The in-memory twin of a provider: a dict of files and a shell of a few words.

It keeps the seam's promises (idempotent ids, pristine worlds, timeouts, limits of output) without
a process, so agents and verifiers can be tested anywhere. It isolates nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence

from trialog.sandbox.errors import (
    FileMissingError,
    FileRefusedError,
    SandboxBusyError,
    SandboxGoneError,
    WorldError,
)
from trialog.sandbox.minishell import run_script
from trialog.sandbox.provider import (
    DEFAULT_TIMEOUT_S,
    WORLD,
    Capabilities,
    Enforcement,
    ExecResult,
    SandboxSpec,
    check_digest,
    check_exec_id,
    check_sandbox_id,
    inside,
)
from trialog.sandbox.snapshot import Snapshot, SnapshotEntry
from trialog.sandbox.worlds.archive import entries


class MemorySandbox:
    """A fork of a world: reads fall through to it, writes stay here."""

    def __init__(self, sandbox_id: str, spec: SandboxSpec, world: Mapping[str, bytes]) -> None:
        self.sandbox_id = sandbox_id
        self.begun_at = time.perf_counter()
        self.spec = spec
        self._world = world
        self._upper: dict[str, bytes | None] = {}  # None: deleted
        self._runs: dict[str, asyncio.Task[ExecResult]] = {}
        self._ended = False

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
        """Run a command of the small shell once per exec id."""
        self._check_alive()
        run = self._runs.get(check_exec_id(exec_id))
        if run is None:
            limit = self.spec.limits.output_bytes
            if output_limit_bytes is not None:
                limit = min(limit, output_limit_bytes)
            run = asyncio.ensure_future(self._run(argv, inside(cwd), stdin, timeout_s, limit))
            self._runs[exec_id] = run
        try:
            return await asyncio.shield(run)
        except asyncio.CancelledError:
            if run.cancelled():
                raise SandboxGoneError(f"sandbox {self.sandbox_id} was destroyed") from None
            raise

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """Return a file's bytes."""
        self._check_alive()
        data = self.lookup(inside(path))
        if data is None:
            raise FileMissingError(f"{path} does not exist")
        if len(data) > limit_bytes:
            raise FileRefusedError(f"{path} has {len(data)} bytes, above {limit_bytes}")
        return data

    async def write(self, path: str, data: bytes) -> None:
        """Put a file in place."""
        self._check_alive()
        self.store(inside(path), data)

    async def kill_all(self) -> None:
        """End every running command as if it had been killed."""
        self._check_alive()
        running = [run for run in self._runs.values() if not run.done()]
        for run in running:
            run.cancel("killed")
        await asyncio.gather(*running, return_exceptions=True)

    async def snapshot(self) -> Snapshot:
        """Return what was written below the world."""
        await self.kill_all()
        prefix = WORLD + "/"
        written = sorted(p for p in self._upper if p.startswith(prefix))
        return Snapshot(tuple(_entry(p.removeprefix(prefix), self._upper[p]) for p in written))

    async def destroy(self) -> None:
        """Forget everything."""
        for run in self._runs.values():
            run.cancel()
        self._upper.clear()
        self._ended = True

    @property
    def ended(self) -> bool:
        """Tell whether it was destroyed."""
        return self._ended

    def lookup(self, path: str) -> bytes | None:
        """Return a file of the fork by its absolute path, or None."""
        if path in self._upper:
            return self._upper[path]
        return self._world.get(path)

    def store(self, path: str, data: bytes | None) -> None:
        """Write a file of the fork, or delete it (None)."""
        if data is None and path not in self._world:
            self._upper.pop(path, None)
        else:
            self._upper[path] = data

    def _check_alive(self) -> None:
        if self._ended:
            raise SandboxGoneError(f"sandbox {self.sandbox_id} was destroyed")

    async def _run(
        self, argv: Sequence[str], cwd: str, stdin: bytes, timeout_s: float, limit: int
    ) -> ExecResult:
        try:
            async with asyncio.timeout(timeout_s):
                code, out, err = await run_script(self, argv, cwd, stdin)
        except TimeoutError:
            return ExecResult(-9, timed_out=True)
        except asyncio.CancelledError:
            if self._ended:
                raise
            return ExecResult(-9)
        truncated = len(out) > limit or len(err) > limit
        return ExecResult(code, out[:limit], err[:limit], truncated)


class MemoryProvider:
    """Keeps worlds and sandboxes in dicts."""

    def __init__(self) -> None:
        self._worlds: dict[str, dict[str, bytes]] = {}
        self._sandboxes: dict[str, MemorySandbox] = {}

    async def probe(self) -> Capabilities:
        """Say that nothing is enforced."""
        none = Enforcement.NONE
        return Capabilities("memory", none, none, none, none, none, ("a twin for tests",))

    async def prepare(self, world_digest: str, tar_bytes: bytes) -> None:
        """Keep a world's files. Raises WorldError."""
        if hashlib.sha256(tar_bytes).hexdigest() != check_digest(world_digest):
            raise WorldError(f"the archive is not the one of digest {world_digest}")
        self._worlds[world_digest] = {
            f"{WORLD}/{entry.path}": entry.data
            for entry in entries(tar_bytes)
            if entry.kind == "file"
        }

    async def prepared(self, world_digest: str) -> bool:
        """Tell whether a world was prepared."""
        return check_digest(world_digest) in self._worlds

    async def create(self, sandbox_id: str, spec: SandboxSpec) -> MemorySandbox:
        """Return a fork of a world; the same id gives the same one."""
        known = self._sandboxes.get(check_sandbox_id(sandbox_id))
        if known is not None and not known.ended:
            if known.spec.world_digest != spec.world_digest:
                raise SandboxBusyError(f"sandbox {sandbox_id} exists over another world")
            return known
        world = self._worlds.get(check_digest(spec.world_digest))
        if world is None:
            raise WorldError(f"world {spec.world_digest} is not prepared here")
        made = self._sandboxes[sandbox_id] = MemorySandbox(sandbox_id, spec, world)
        return made

    async def attach(self, sandbox_id: str) -> MemorySandbox:
        """Return a living sandbox."""
        known = self._sandboxes.get(check_sandbox_id(sandbox_id))
        if known is None or known.ended:
            raise SandboxGoneError(f"there is no living sandbox {sandbox_id}")
        return known

    async def sweep(self, live_ids: Iterable[str]) -> list[str]:
        """Nothing outlives this process, so nothing is ever left over."""
        return []

    async def close(self) -> None:
        """Destroy all sandboxes."""
        for sandbox in self._sandboxes.values():
            await sandbox.destroy()


def _entry(path: str, data: bytes | None) -> SnapshotEntry:
    if data is None:
        return SnapshotEntry(path, "deleted")
    digest = hashlib.sha256(data).hexdigest()
    return SnapshotEntry(path, "file", len(data), False, digest, data)
