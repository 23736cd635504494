"""What is done inside a sandbox through its PID 1, whoever made the sandbox.

Nothing here knows of bubblewrap or a daemon: one function sends a request to PID 1 and returns its
reply (``bubblewrap/wire.py`` has both).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from trialog.sandbox.bubblewrap import wire
from trialog.sandbox.errors import InvalidNameError
from trialog.sandbox.images import Image, ImageSpec, Pulled, User
from trialog.sandbox.provider import (
    DEFAULT_TIMEOUT_S,
    ExecResult,
    Limits,
    check_exec_id,
    inside,
)
from trialog.sandbox.rootfs import transfer

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
Ask = Callable[[bytes], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Defaults:
    """What commands get that do not say otherwise."""

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"
    user: User = 0

    @classmethod
    def of(cls, image: Image, spec: ImageSpec) -> Self:
        """Return an image's defaults, under those of the sandbox."""
        return cls(
            {"PATH": PATH, **image.env, **spec.env},
            image.workdir if spec.workdir is None else spec.workdir,
            image.user if spec.user is None else spec.user,
        )


def absolute(path: str) -> str:
    """Return a path as it is named inside. Raises InvalidNameError."""
    if not path.startswith("/"):
        raise InvalidNameError(f"path {path[:120]!r} is not absolute")
    return inside(path, "/")


class Guest:
    """Commands, files and processes of one sandbox."""

    def __init__(self, ask: Ask, limits: Limits, defaults: Defaults) -> None:
        self._ask = ask
        self._limits = limits
        self._defaults = defaults

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
        """Run a command once per exec id; see the seam."""
        limit = self._limits.output_bytes
        request = wire.exec_request(
            check_exec_id(exec_id),
            argv,
            cwd=absolute(self._defaults.workdir if cwd is None else cwd),
            env={**self._defaults.env, **(env or {})},
            stdin=stdin,
            timeout_s=timeout_s,
            output_limit_bytes=limit if output_limit_bytes is None else output_limit_bytes,
            user=str(self._defaults.user if user is None else user),
        )
        return wire.exec_result(await self._ask(request))

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """Return a regular file's bytes; see the seam."""
        request = wire.read_request(absolute(path), limit_bytes)
        return wire.file_bytes(path, await self._ask(request))

    async def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Put a file in place; see the seam."""
        request = wire.write_request(absolute(path), data, mode)
        wire.file_bytes(path, await self._ask(request))

    async def upload(self, source: Path, target: str) -> None:
        """Copy a folder in; see the seam."""
        await transfer.upload(self._ask, source, absolute(target))

    async def download(
        self, source: str, target: Path, limit_bytes: int, exclude: Sequence[str] = ()
    ) -> Pulled:
        """Copy a file or folder out; see the seam."""
        return await transfer.download(self._ask, absolute(source), target, limit_bytes, exclude)

    async def processes(self) -> int:
        """Return how many processes live inside; see the seam."""
        return wire.count(await self._ask(bytes([wire.Op.COUNT])))

    async def kill_all(self) -> None:
        """Kill every process inside; see the seam."""
        await self._ask(bytes([wire.Op.KILL_ALL]))
