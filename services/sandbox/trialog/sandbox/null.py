"""A provider that isolates nothing and runs nothing: for measuring everything around it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trialog.sandbox.provider import (
    DEFAULT_TIMEOUT_S,
    WORLD,
    Capabilities,
    Enforcement,
    ExecResult,
    SandboxSpec,
    check_sandbox_id,
)
from trialog.sandbox.snapshot import Snapshot

_DONE = ExecResult(0)
_NOTHING = Snapshot(())


@dataclass(frozen=True, slots=True)
class NullSandbox:
    """Every command succeeds at once without being run; every file is empty."""

    sandbox_id: str
    begun_at: float = field(default_factory=time.perf_counter)

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
        """Return success."""
        return _DONE

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """Return nothing."""
        return b""

    async def write(self, path: str, data: bytes) -> None:
        """Drop the data."""

    async def kill_all(self) -> None:
        """There is nothing to kill."""

    async def snapshot(self) -> Snapshot:
        """Return an empty snapshot."""
        return _NOTHING

    async def destroy(self) -> None:
        """There is nothing to destroy."""


class NullProvider:
    """Hands out sandboxes that do nothing."""

    async def probe(self) -> Capabilities:
        """Say that nothing is enforced."""
        none = Enforcement.NONE
        return Capabilities("null", none, none, none, none, none, ("isolates and runs nothing",))

    async def prepare(self, world_digest: str, tar_bytes: bytes) -> None:
        """Worlds are not needed."""

    async def prepared(self, world_digest: str) -> bool:
        """Say yes: no world is ever read."""
        return True

    async def create(self, sandbox_id: str, spec: SandboxSpec) -> NullSandbox:
        """Return a sandbox that does nothing."""
        return NullSandbox(check_sandbox_id(sandbox_id))

    async def attach(self, sandbox_id: str) -> NullSandbox:
        """Return a sandbox that does nothing."""
        return NullSandbox(check_sandbox_id(sandbox_id))

    async def sweep(self, live_ids: Iterable[str]) -> list[str]:
        """There is never anything left."""
        return []

    async def close(self) -> None:
        """There is nothing to close."""
