"""Where the root filesystem of a name in FROM comes from: what a run's ``images`` say."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trialog.proto.tasks.dockerfile import plain_name
from trialog.sandbox.errors import ImageError
from trialog.sandbox.rootfs import oci, reading

Kind = Literal["tar", "oci", "host", "scratch"]
_digests: dict[tuple[str, int, int, int], str] = {}


@dataclass(frozen=True, slots=True)
class Base:
    """A declared base: ``identity`` is a digest of what is in it, ``tag`` one of a layout's."""

    kind: Kind
    identity: str
    path: Path | None = None
    tag: str = ""


def declared(name: str, images: Mapping[str, str]) -> str | None:
    """Return what ``images`` say of a name, however FROM spells it (registry, ``latest``)."""
    for known, source in images.items():
        if plain_name(known) == plain_name(name):
            return source
    return None


def resolve(name: str, images: Mapping[str, str]) -> Base:
    """Return the base of a name in FROM. Raises ImageError with the mend."""
    if name == "scratch":
        return Base("scratch", "scratch")
    source = declared(name, images)
    if source is None:
        raise ImageError(
            f"image {name!r} is not declared: say in the run's `images` where its root filesystem "
            f"comes from, as in `images: {{{name!r}: tar:/path/rootfs.tar}}` (or oci:PATH, or host "
            "for this host's own programs)"
        )
    if source == "host":
        return Base("host", _host_identity())
    kind, _, place = source.partition(":")
    if kind not in ("tar", "oci") or not place:
        raise ImageError(f"image {name!r}: {source!r} is none of tar:PATH, oci:PATH, host")
    if kind == "tar":
        return Base("tar", _file_digest(name, Path(place)), Path(place))
    path, tag = oci.split(place)
    return Base("oci", oci.identity(path, tag), path, tag)


def _file_digest(name: str, path: Path) -> str:
    """Digest an archive once for as long as it stays the same file."""
    try:
        info = path.stat()
        key = (str(path), info.st_ino, info.st_size, info.st_mtime_ns)
        if key not in _digests:
            _digests[key] = reading.sha256(path)
    except ImageError as error:
        raise ImageError(f"image {name!r}: {error}") from error
    except OSError as error:
        raise ImageError(f"image {name!r}: {path} cannot be read: {error.strerror}") from error
    return _digests[key]


def _host_identity() -> str:
    """The host's programs have no digest: its release and machine stand for them."""
    release = Path("/etc/os-release")
    text = release.read_text() if release.is_file() else ""
    return hashlib.sha256(f"host 1 {platform.machine()} {text}".encode()).hexdigest()
