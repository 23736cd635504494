"""The seam between trials and isolation: what every sandbox provider offers.

All ids are chosen by the caller, so every call can be repeated: a sandbox that exists is returned,
an exec id that already ran gives its kept result and runs nothing. Paths are relative to the
world (``docs/doc-0.txt``) or absolute inside the sandbox (``/tmp/x``); the world is at ``/world``.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from trialog.sandbox.errors import InvalidNameError
from trialog.sandbox.snapshot import Snapshot

WORLD = "/world"
DEFAULT_TIMEOUT_S = 300.0

_SANDBOX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_EXEC_ID = re.compile(r"[\x21-\x7e]{1,200}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Enforcement(enum.StrEnum):
    """How a provider holds a limit."""

    HARD = "hard"  # the kernel refuses what is above it
    POLLED = "polled"  # a watchdog looks and kills: short overshoots happen
    NONE = "cannot"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider's self-test found that it can hold here; ``notes`` are for the operator."""

    provider: str
    memory: Enforcement
    pids: Enforcement
    cpu: Enforcement
    disk: Enforcement
    network: Enforcement
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one sandbox. ``output_bytes`` is per stream of one command; ``cpus`` counts cores,
    None leaves their share to the scheduler."""

    memory_bytes: int = 1 << 30
    pids: int = 256
    disk_bytes: int = 1 << 30
    output_bytes: int = 1 << 20
    cpus: float | None = None


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a sandbox is made from. Network is refused whole: only ``none`` exists so far."""

    world_digest: str
    limits: Limits = field(default_factory=Limits)
    network: Literal["none"] = "none"


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended.

    ``exit_code`` is negative for a signal (-9: killed) and 127 when it could not be started.
    ``truncated``: a stream went over its limit and its head was kept. ``limit`` names the
    resource limit (memory, disk) whose watchdog ended the command.
    """

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    timed_out: bool = False
    limit: str | None = None


class Sandbox(Protocol):
    """One isolated copy of a world, alive until destroyed."""

    @property
    def sandbox_id(self) -> str:
        """The caller's name for it."""
        ...

    @property
    def begun_at(self) -> float:
        """When its making began, by time.perf_counter(): waiting for a turn is not counted."""
        ...

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
        """Run a command and wait for its process to exit; its background children may live on.

        A repeated exec id returns (or waits for) the first run's result. After ``timeout_s`` the
        command is killed with its session and descendants. Raises SandboxGoneError,
        ResultDroppedError, InvalidNameError.
        """
        ...

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """Return a regular file's bytes, following no symlink.

        Raises FileMissingError, FileRefusedError (not regular, above the limit, a symlink on the
        way), SandboxGoneError.
        """
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Put a file in place whole, making missing folders. Raises FileRefusedError."""
        ...

    async def kill_all(self) -> None:
        """Kill every process inside and return when all are dead. The sandbox stays usable."""
        ...

    async def snapshot(self) -> Snapshot:
        """Kill everything inside, then return what was written relative to the world.

        Raises SnapshotRefusedError when what was left is above the caps.
        """
        ...

    async def destroy(self) -> None:
        """End the sandbox and leave nothing of it; harmless when it is gone already."""
        ...


class SandboxProvider(Protocol):
    """Makes sandboxes on this host."""

    async def probe(self) -> Capabilities:
        """Really start a sandbox and say what is enforced.

        Raises ProviderUnavailableError with the mend when isolation cannot be had (fail closed).
        """
        ...

    async def prepare(self, world_digest: str, tar_bytes: bytes) -> None:
        """Unpack a world once per host; repeatable, and safe from several processes at once.

        ``world_digest`` is the hex SHA-256 of ``tar_bytes``. Raises WorldError.
        """
        ...

    async def prepared(self, world_digest: str) -> bool:
        """Tell whether a world is unpacked here, so its bytes need not be fetched."""
        ...

    async def create(self, sandbox_id: str, spec: SandboxSpec) -> Sandbox:
        """Return a sandbox over a pristine prepared world; the same id gives the same sandbox.

        Raises WorldError (not prepared), SandboxBusyError, SandboxGoneError, InvalidNameError.
        """
        ...

    async def attach(self, sandbox_id: str) -> Sandbox:
        """Return a living sandbox made earlier, by a dead worker too. Raises SandboxGoneError."""
        ...

    async def sweep(self, live_ids: Iterable[str]) -> list[str]:
        """Remove sandboxes that no living worker owns and that are not in ``live_ids``.

        Returns the ids removed.
        """
        ...

    async def close(self) -> None:
        """Destroy what this provider made and free its thread."""
        ...


def check_sandbox_id(text: str) -> str:
    """Return the text if it may name a sandbox (and its folder), else raise InvalidNameError."""
    if not _SANDBOX_ID.fullmatch(text):
        raise InvalidNameError(
            f"sandbox id {text[:120]!r} is not 1 to 100 of A-Z a-z 0-9 . _ - starting with "
            "a letter or digit"
        )
    return text


def check_exec_id(text: str) -> str:
    """Return the text if it may name a command's run, else raise InvalidNameError."""
    if not _EXEC_ID.fullmatch(text):
        raise InvalidNameError(f"exec id {text[:120]!r} is not 1 to 200 printable ASCII characters")
    return text


def check_digest(text: str) -> str:
    """Return the text if it is a hex SHA-256, else raise InvalidNameError."""
    if not _DIGEST.fullmatch(text):
        raise InvalidNameError(f"world digest {text[:80]!r} is not 64 hex digits")
    return text


def inside(path: str, cwd: str = WORLD) -> str:
    """Return a path as it is named inside the sandbox: absolute, without ``.`` parts.

    Raises InvalidNameError for an empty path, a NUL, or ``..``.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path or "\0" in path or ".." in parts or len(path) > 4000:
        raise InvalidNameError(f"path {path[:120]!r} is empty, too long, or has a NUL or '..'")
    base = "" if path.startswith("/") else cwd.rstrip("/")
    return "/".join([base, *parts]) or "/"
