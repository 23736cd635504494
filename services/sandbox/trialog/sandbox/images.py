"""The seam for tasks: sandboxes whose whole root filesystem comes from an image.

What ``provider.py`` offers for the reference world, and on top of it: images that are built once
by content, users, folders in and out, and a final state that can be kept and started from again.
A provider that implements ``ImageProvider`` runs tasks; docs/sandboxes.md says how to add one.
Paths are absolute inside the sandbox. Ids are the caller's, so every call can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from trialog.sandbox.provider import (
    DEFAULT_TIMEOUT_S,
    Capabilities,
    ExecResult,
    Limits,
)
from trialog.sandbox.snapshot import Snapshot

Network = Literal["none", "public"]
User = str | int
UNSAVED_ORPHAN_S = 5.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an image is built from: a folder with a Dockerfile, or a ready image's name.

    ``images`` says where the root filesystem of an image comes from, by the name in FROM:
    ``oci:PATH``, ``tar:PATH`` or ``host``; a daemon that has images of its own need not look there.
    """

    context: Path
    dockerfile: str | None = "Dockerfile"
    docker_image: str | None = None
    images: Mapping[str, str] = field(default_factory=dict[str, str])
    network: Network = "none"
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Image:
    """A built image. ``digest`` (hex SHA-256) is of the recipe's content and its bases'."""

    digest: str
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"
    user: User = 0


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """What a sandbox is started from.

    ``states`` are files that ``save`` wrote, laid over the image in their order: the sandbox begins
    as the saved one was left, without its processes. ``env``, ``workdir`` and ``user`` are the
    defaults of its commands (None: the image's). One that is not ``resumable`` is worth nothing to
    another worker before it was saved: until then it outlives its own by UNSAVED_ORPHAN_S at most.
    """

    image: str
    limits: Limits = field(default_factory=Limits)
    network: Network = "none"
    states: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str | None = None
    user: User | None = None
    resumable: bool = True


@dataclass(frozen=True, slots=True)
class Pulled:
    """What ``download`` wrote: regular files by path relative to its target, and what it left out
    (links, devices, what is above a limit), each with the reason. ``is_folder`` says what lay at
    the source itself: nothing inside is asked for it."""

    files: tuple[str, ...]
    refused: tuple[tuple[str, str], ...] = ()
    is_folder: bool = False


class ImageSandbox(Protocol):
    """One sandbox with a root filesystem of its own, alive until destroyed."""

    @property
    def sandbox_id(self) -> str:
        """The caller's name for it."""
        ...

    @property
    def image(self) -> Image:
        """The image it was started from."""
        ...

    async def exec(
        self,
        exec_id: str,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        output_limit_bytes: int | None = None,
        user: User | None = None,
    ) -> ExecResult:
        """Run a command and wait for its process to exit; its background children live on.

        A repeated exec id returns (or waits for) the first run's result, for a new worker that
        attached, too. After ``timeout_s`` the command is killed with its descendants. ``env`` is
        laid over the sandbox's; an unknown user is an exit code of 126 with the reason on stderr.
        Raises SandboxGoneError, ResultDroppedError, InvalidNameError.
        """
        ...

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """Return a regular file's bytes, following no symlink.

        Raises FileMissingError, FileRefusedError, SandboxGoneError.
        """
        ...

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file of root's in place whole, making missing folders. Raises FileRefusedError."""
        ...

    async def upload(self, source: Path, target: str) -> None:
        """Copy a folder's content into a folder, owned by root, modes kept; no link is followed
        on either side. Raises FileRefusedError."""
        ...

    async def download(
        self, source: str, target: Path, limit_bytes: int, exclude: Sequence[str] = ()
    ) -> Pulled:
        """Copy a file or folder out into an empty or missing host folder, as plain files.

        Nothing inside is trusted: regular files only, names checked, in all at most
        ``limit_bytes`` and 100,000 entries; ``exclude`` are patterns as for ``tar --exclude``.
        Raises FileMissingError, SandboxGoneError.
        """
        ...

    async def processes(self) -> int:
        """Return how many processes live inside, its own init apart."""
        ...

    async def kill_all(self) -> None:
        """Kill every process inside and return when all are dead. The sandbox stays usable."""
        ...

    async def save(self, target: Path, limit_bytes: int) -> Snapshot:
        """Write what differs from the image to a file, for ``ImageSpec.states``, and list it.

        Processes stand still meanwhile and go on after. The snapshot's digest depends on paths,
        kinds, modes and contents only. Raises SnapshotRefusedError above the caps.
        """
        ...

    async def destroy(self) -> None:
        """End the sandbox and leave nothing of it; harmless when it is gone already."""
        ...


class ImageProvider(Protocol):
    """Starts sandboxes from images on this host."""

    async def probe(self) -> Capabilities:
        """Really start a sandbox and say what is enforced.

        Raises ProviderUnavailableError with the mend (fail closed).
        """
        ...

    async def identify(self, recipe: Recipe) -> str:
        """Return the digest that the built image has, without building. Raises ImageError."""
        ...

    async def build(self, recipe: Recipe) -> Image:
        """Return the image of a recipe, built at most once per host and content; safe from several
        processes at once. Raises ImageError with the end of what the build said."""
        ...

    async def start(self, sandbox_id: str, spec: ImageSpec) -> ImageSandbox:
        """Return a running sandbox; the same id gives the same sandbox.

        Raises ImageError (not built here), SandboxBusyError, SandboxGoneError, InvalidNameError.
        """
        ...

    async def resume(self, sandbox_id: str) -> ImageSandbox:
        """Return a sandbox that is alive, started by a dead worker too. Raises SandboxGoneError."""
        ...

    async def sweep(self, live_ids: Iterable[str]) -> list[str]:
        """Remove sandboxes that no living worker owns, whose time is over and that are not in
        ``live_ids``. Returns the ids removed."""
        ...

    async def close(self) -> None:
        """End what this provider started, but for what may outlive its worker."""
        ...
