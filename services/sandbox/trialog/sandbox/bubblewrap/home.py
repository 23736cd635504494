"""A sandbox's folder on the host: what is in it, who owns it, and finding its PID 1 again.

run/<sandbox id>/
  lock       held (flock) by the worker that owns the sandbox, so a dead worker's shows
  record     JSON: the spec, a nonce that PID 1 carries in its arguments, its cgroups
  info       bubblewrap's JSON, with PID 1's pid on the host
  log        what bubblewrap and PID 1 said
  socket     where PID 1 listens
  upper/ work/   the overlay's; below fs/, which the sandbox's ids own, where a root is an image's
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import socket
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from trialog.sandbox.bubblewrap import cgroups
from trialog.sandbox.errors import SandboxGoneError
from trialog.sandbox.images import Image, User
from trialog.sandbox.owning import own
from trialog.sandbox.provider import Limits
from trialog.sandbox.rootfs.guest import Defaults
from trialog.sandbox.trees import remove_tree

_DEATH_WAIT_S = 10.0
_LOG_TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Rooted:
    """What is kept of a sandbox with an image's root: the image, and its commands' defaults."""

    image_env: dict[str, str]
    image_workdir: str
    image_user: User
    env: dict[str, str]
    workdir: str
    user: User
    base: int | None

    @classmethod
    def of(cls, image: Image, defaults: Defaults, base: int | None) -> Rooted:
        """Return what to keep."""
        own = dict(image.env), image.workdir, image.user
        return cls(*own, dict(defaults.env), defaults.workdir, defaults.user, base)

    def image(self, digest: str) -> Image:
        """Return the image."""
        return Image(digest, self.image_env, self.image_workdir, self.image_user)

    def defaults(self) -> Defaults:
        """Return its commands' defaults."""
        return Defaults(self.env, self.workdir, self.user)


@dataclass(frozen=True, slots=True)
class Record:
    """What a later worker must know about a sandbox; ``content`` is its world's or image's digest.

    ``outlives`` tells that it may go on without its worker for a while, and is its own to end.
    """

    content: str
    limits: Limits
    nonce: str
    groups: tuple[str, ...] = ()
    outlives: bool = False
    rooted: Rooted | None = None

    def to_json(self) -> str:
        """Return the text kept in the folder."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read ``to_json()`` back. Raises ValueError, KeyError or TypeError on anything else."""
        raw = json.loads(text)
        raw["limits"] = Limits(**raw["limits"])
        raw["groups"] = tuple(raw["groups"])
        raw["rooted"] = Rooted(**raw["rooted"]) if raw["rooted"] else None
        return cls(**raw)


class Home:
    """An open, locked folder of a sandbox. Addresses go through its descriptor: a socket's path
    may have 107 bytes only, and folders of temporary files can be deeper."""

    def __init__(self, path: Path, fd: int, lock: int, record: Record) -> None:
        self.path = path
        self.record = record
        self._fd = fd
        self._lock = lock

    @classmethod
    def new(cls, parent: Path, record: Record) -> Home:
        """Make a folder under a passing name; ``settle`` gives it its own."""
        path = parent / f".new-{record.nonce}"
        path.mkdir(mode=0o700)
        home = cls(path, *own(path, create=True), record)
        try:
            home._make_overlay()
        except BaseException:  # whatever it was, leave nothing behind
            home.remove()
            raise
        return home

    def _make_overlay(self) -> None:
        """An image's root belongs to ids that may enter nothing else here."""
        base = self.record.rooted.base if self.record.rooted else None
        folders = [self.overlay] if self.record.rooted else []
        for folder in (*folders, self.upper, self.overlay / "work"):
            folder.mkdir(mode=0o755)
            if base is not None:
                os.chown(folder, base, base)

    @property
    def overlay(self) -> Path:
        """Where ``upper`` and ``work`` are."""
        return self.path / "fs" if self.record.rooted else self.path

    @property
    def upper(self) -> Path:
        """What was written, over the world or the image."""
        return self.overlay / "upper"

    @classmethod
    def find(cls, path: Path) -> Home:
        """Open a sandbox's folder and own it.

        Raises SandboxGoneError when there is none, SandboxBusyError when another lives in it.
        """
        try:
            fd, lock = own(path, create=False)
        except FileNotFoundError:
            raise SandboxGoneError(f"there is no sandbox {path.name}") from None
        try:
            record = Record.from_json((path / "record").read_text())
        except (OSError, ValueError, KeyError, TypeError):
            # A worker died while it made the folder: nothing but the lock can be relied on.
            record = Record("", Limits(), "")
        return cls(path, fd, lock, record)

    def settle(self, path: Path) -> bool:
        """Move to the final name; False when a sandbox is there already."""
        try:
            self.path.rename(path)
        except OSError:
            if path.is_dir():
                return False
            raise
        self.path = path
        return True

    def keep(self, record: Record) -> None:
        """Write the record."""
        self.record = record
        (self.path / "record").write_text(record.to_json())

    @property
    def address(self) -> str:
        """Where PID 1 is reached while this object is open."""
        return f"/proc/self/fd/{self._fd}/socket"

    def listen(self) -> socket.socket:
        """Return the listening socket to hand to PID 1."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.address)
        listener.listen(128)
        return listener

    def log_tail(self) -> str:
        """Return the end of what bubblewrap and PID 1 said."""
        try:
            said = (self.path / "log").read_bytes()
        except OSError:
            return ""
        return said[-_LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()

    def alive(self) -> bool:
        """Tell whether PID 1 lives."""
        with self._init() as process:
            return process is not None

    def kill(self) -> None:
        """Kill PID 1, and with it, by the kernel, everything inside; return when it is dead."""
        with self._init() as process:
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                select.select([process], [], [], _DEATH_WAIT_S)

    @contextlib.contextmanager
    def _init(self) -> Generator[int | None]:
        """Give PID 1 as a descriptor, None when it is dead."""
        try:
            info = json.loads((self.path / "info").read_bytes() or b"{}")
            pid = int(info["child-pid"])
            process = os.pidfd_open(pid)
        except (OSError, ValueError, KeyError):
            yield None
            return
        try:
            # The pid may be another process's by now; the nonce in its arguments tells.
            ours = self.record.nonce and self.record.nonce.encode() in _arguments(pid)
            yield process if ours else None
        finally:
            os.close(process)

    def remove(self) -> None:
        """Remove what is left: cgroups and the folder. Everything inside must be dead."""
        cgroups.remove([Path(group) for group in self.record.groups])
        remove_tree(self.path)
        self.close()

    def close(self) -> None:
        """Give up ownership and leave the sandbox as it is."""
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
