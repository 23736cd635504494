"""The images of one host: from a recipe to layers on the disk."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

from trialog.sandbox.errors import ImageError
from trialog.sandbox.images import Image
from trialog.sandbox.rootfs import oci, reading, skeleton
from trialog.sandbox.rootfs.bases import Base
from trialog.sandbox.rootfs.store import ImageStore, Stored
from trialog.sandbox.rootfs.unpack import Unpacker, members

_FORMAT = 1  # raised when what is unpacked from the same bytes changes


class Library:
    """Brings bases into the store (all blocking)."""

    def __init__(self, store: ImageStore) -> None:
        self.store = store

    def base(self, base: Base) -> Stored:
        """Return a base as an image, unpacked first when it is not here. Raises ImageError.

        Its digest is the base's identity; nothing is kept under it.
        """
        bottom = self._skeleton("bottom")
        match base.kind:
            case "scratch":
                return Stored(Image(base.identity), (bottom,))
            case "host":
                name = f"host-{_FORMAT}-{base.identity}"
                own = self.store.layer(name, lambda folder: skeleton.host(folder, self.store.base))
                return Stored(Image(base.identity), (own, bottom), host=True)
            case "tar":
                return Stored(Image(base.identity), (self._tar(base), bottom))
            case "oci":
                return self._oci(base, bottom)

    def over(self, stored: Stored) -> list[Path]:
        """Return a sandbox's layers from the top down: the image's, under names of its own."""
        return self.store.paths(replace(stored, layers=(self._skeleton("top"), *stored.layers)))

    def _skeleton(self, which: str) -> str:
        fill = skeleton.bottom if which == "bottom" else skeleton.top
        return self.store.layer(f"{which}-{_FORMAT}", lambda folder: fill(folder, self.store.base))

    def _tar(self, base: Base) -> str:
        path = base.path
        assert path is not None

        def fill(folder: Path) -> None:
            try:
                with (
                    reading.regular(path) as file,
                    tarfile.open(fileobj=file, mode="r:*") as archive,
                    Unpacker(folder, self.store.base) as into,
                ):
                    for member in members(archive, str(path)):
                        into.put(archive, member)
            except (tarfile.TarError, OSError, EOFError) as error:
                raise ImageError(f"{path} cannot be unpacked: {error}") from error

        return self.store.layer(f"tar-{_FORMAT}-{base.identity}", fill)

    def _oci(self, base: Base, bottom: str) -> Stored:
        path = base.path
        assert path is not None
        own = self.store.layer(
            f"oci-{_FORMAT}-{base.identity}",
            lambda folder: oci.unpack(path, base.tag, folder, self.store.base),
        )
        found = oci.settings(path, base.tag)
        image = Image(base.identity, found.env, found.workdir, plain_user(found.user))
        return Stored(image, (own, bottom))


def plain_user(text: str) -> str | int:
    """Return a user as a number where it is one; empty is root."""
    return int(text) if text.isdigit() else text or 0
