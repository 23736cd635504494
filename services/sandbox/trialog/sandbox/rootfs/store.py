"""Images on a host: folders of layers, and what is known of an image, by its digest.

layers/<name>/         one layer, unpacked; shared by images and read-only in use
images/<digest>.json   an image: its layers from the top down and its settings
locks/<name>           held (flock) while a layer or an image is made

What is made is made aside (``layers/.new-*``, locked itself while its maker lives), synced and
renamed: several processes may share the store, and a crash leaves nothing under a final name.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import json
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from trialog.sandbox.errors import ImageError
from trialog.sandbox.images import Image
from trialog.sandbox.trees import remove_tree
from trialog.sandbox.worlds.store import sync_filesystem, sync_folder

_ASIDE = ".new-"
_LOCK_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Stored:
    """An image and where it lies: ``layers`` from the top down; ``host`` asks for the host's
    programs over them."""

    image: Image
    layers: tuple[str, ...]
    host: bool = False

    def to_json(self) -> str:
        """Return the text that is kept."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Stored:
        """Read ``to_json()`` back."""
        raw = json.loads(text)
        return cls(Image(**raw["image"]), tuple(raw["layers"]), raw["host"])


class ImageStore:
    """A folder of images whose files belong to one range of ids: ``base`` is root's in it."""

    def __init__(self, root: Path, base: int | None) -> None:
        self.base = base
        self._layers = root / "layers"
        self._images = root / "images"
        self._locks = root / "locks"
        for folder in (self._layers, self._images, self._locks):
            folder.mkdir(parents=True, exist_ok=True)
        root.chmod(0o700)  # an image's setuid programs are nobody else's to run

    def find(self, digest: str) -> Stored | None:
        """Return an image, None when it is not here."""
        try:
            return Stored.from_json((self._images / f"{digest}.json").read_text())
        except FileNotFoundError:
            return None

    def keep(self, stored: Stored) -> Stored:
        """Make an image known whose layers are here."""
        path = self._images / f"{stored.image.digest}.json"
        aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
        aside.write_text(stored.to_json())
        aside.replace(path)
        sync_folder(self._images)
        return stored

    def paths(self, stored: Stored) -> list[Path]:
        """Return an image's layers on the disk, from the top down. Raises ImageError."""
        paths = [self._layers / name for name in stored.layers]
        for path in paths:
            if not path.is_dir():
                raise ImageError(f"layer {path.name} of image {stored.image.digest} is gone")
        return paths

    def layer(self, name: str, fill: Callable[[Path], None]) -> str:
        """Make a layer unless it is here, by filling an empty folder; return its name."""
        final = self._layers / name
        if final.is_dir():
            return name
        with self.lock(name):
            if not final.is_dir():
                with self.aside() as folder:
                    fill(folder)
                    self.settle(folder, name)
        return name

    @contextlib.contextmanager
    def aside(self) -> Generator[Path]:
        """Give an empty folder that is removed at the end, unless it was settled."""
        folder = self._layers / f"{_ASIDE}{secrets.token_hex(8)}"
        folder.mkdir(mode=0o755)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            if self.base is not None:
                os.fchown(held, self.base, self.base)
            yield folder
        finally:
            os.close(held)
            remove_tree(folder)

    def settle(self, folder: Path, name: str) -> None:
        """Give a filled folder of this filesystem its final name."""
        sync_filesystem(folder)
        folder.rename(self._layers / name)
        sync_folder(self._layers)

    @contextlib.contextmanager
    def lock(self, name: str) -> Generator[None]:
        """Hold a name among all processes that share the store (blocking)."""
        with (self._locks / name).open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.asynccontextmanager
    async def locked(self, name: str) -> AsyncGenerator[None]:
        """Hold a name as ``lock`` does, without blocking the loop while another holds it."""
        with (self._locks / name).open("wb") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_LOCK_PAUSE_S)
            yield

    def sweep(self) -> None:
        """Remove what dead makers left aside."""
        for folder in self._layers.glob(f"{_ASIDE}*"):
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(folder)
                finally:
                    os.close(held)
