"""OCI image layouts: a folder (or nothing else) with index.json and blobs by digest."""

from __future__ import annotations

import json
import os
import platform
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trialog.sandbox.errors import ImageError
from trialog.sandbox.rootfs import reading
from trialog.sandbox.rootfs.unpack import Unpacker, inner_path, members

_WHITEOUT, _OPAQUE, _AUFS = ".wh.", ".wh..wh..opq", ".wh..wh."
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_INDEX = ("application/vnd.oci.image.index.v1+json", "manifest.list.v2+json")
_REF = "org.opencontainers.image.ref.name"
_MAX_JSON_BYTES = 8 << 20
_MAX_NESTED = 4


@dataclass(frozen=True, slots=True)
class Settings:
    """What an image's configuration says of its commands."""

    env: dict[str, str]
    workdir: str
    user: str


def split(place: str) -> tuple[Path, str]:
    """Part PATH[:TAG]; a path that exists as it stands has no tag."""
    if not Path(place).exists() and ":" in place:
        path, _, tag = place.rpartition(":")
        return Path(path), tag
    return Path(place), ""


def identity(layout: Path, tag: str) -> str:
    """Return the digest of an image's manifest. Raises ImageError."""
    return _manifest(layout, tag)["digest"].partition(":")[2]


def settings(layout: Path, tag: str) -> Settings:
    """Return an image's settings. Raises ImageError."""
    manifest = _json(layout, _manifest(layout, tag))
    config = _json(layout, manifest["config"]).get("config") or {}
    pairs = (text.partition("=") for text in config.get("Env") or ())
    return Settings(
        {name: value for name, _, value in pairs},
        config.get("WorkingDir") or "/",
        config.get("User") or "",
    )


def blobs(layout: Path, tag: str) -> tuple[Path, list[Path]]:
    """Return the files of an image's configuration and its layers, checked. Raises ImageError."""
    manifest = _json(layout, _manifest(layout, tag))
    descriptors = [manifest["config"], *manifest["layers"]]
    found = [_blob(layout, each) for each in descriptors]
    for blob, each in zip(found, descriptors, strict=True):
        _check(blob, each["digest"])
    return found[0], found[1:]


def unpack(layout: Path, tag: str, folder: Path, base: int | None) -> None:
    """Lay an image's layers over one another into an empty folder. Raises ImageError."""
    for descriptor in _json(layout, _manifest(layout, tag))["layers"]:
        blob = _blob(layout, descriptor)
        _check(blob, descriptor["digest"])
        what = f"layer {descriptor['digest'][:19]}"
        try:
            _delete(blob, folder, what)
            with (
                reading.regular(blob) as file,
                tarfile.open(fileobj=file, mode="r:*") as archive,
                Unpacker(folder, base) as into,
            ):
                for member in members(archive, what):
                    if not inner_path(member.name).rpartition("/")[2].startswith(_WHITEOUT):
                        into.put(archive, member)
        except (tarfile.TarError, OSError, EOFError) as error:
            raise ImageError(f"{layout}: {what} cannot be unpacked: {error}") from error


def _delete(blob: Path, folder: Path, what: str) -> None:
    """Apply a layer's deletions first: they are of the layers below, wherever they stand in it."""
    with (
        reading.regular(blob) as file,
        tarfile.open(fileobj=file, mode="r:*") as archive,
        Unpacker(folder, None) as into,
    ):
        for member in members(archive, what):
            above, _, name = inner_path(member.name).rpartition("/")
            if not name.startswith(_WHITEOUT):
                continue
            parent, _ = into.parent(f"{above}/x" if above else "x")
            if name == _OPAQUE:
                for each in os.listdir(parent):  # noqa: PTH208 - a descriptor, not a path
                    into.clear(parent, each)
            elif not name.startswith(_AUFS):
                into.clear(parent, name.removeprefix(_WHITEOUT))


def _manifest(layout: Path, tag: str) -> dict[str, Any]:
    """Return the descriptor of the one image that is meant."""
    try:
        index = json.loads(reading.text(layout / "index.json", _MAX_JSON_BYTES))
        found = list(_images(layout, index, tag, 0))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ImageError(f"{layout} is not an OCI image layout: {error}") from error
    if len({each["digest"] for each in found}) != 1:
        tags = sorted(filter(None, map(_tag, index["manifests"])))
        raise ImageError(
            f"{layout} has {len(found)} images for this machine"
            + (f" with the tag {tag!r}" if tag else "")
            + f": name one as oci:PATH:TAG (tags there: {', '.join(tags) or 'none'})"
        )
    return found[0]


def _images(layout: Path, index: dict[str, Any], tag: str, depth: int) -> Iterator[dict[str, Any]]:
    for each in index["manifests"]:
        if tag and depth == 0 and _tag(each) != tag:
            continue
        wanted = each.get("platform") or {}
        machine = _MACHINES.get(platform.machine(), platform.machine())
        if wanted.get("architecture", machine) != machine or wanted.get("os", "linux") != "linux":
            continue
        if str(each.get("mediaType", "")).endswith(_INDEX):
            if depth < _MAX_NESTED:
                yield from _images(layout, _json(layout, each), tag, depth + 1)
        else:
            yield each


def _tag(descriptor: dict[str, Any]) -> str:
    return (descriptor.get("annotations") or {}).get(_REF, "")


def _blob(layout: Path, descriptor: dict[str, Any]) -> Path:
    algorithm, _, digest = str(descriptor["digest"]).partition(":")
    if algorithm != "sha256" or len(digest) != 64 or not digest.isalnum():
        raise ImageError(f"{layout}: digest {descriptor['digest']!r} is not a SHA-256")
    return layout / "blobs" / "sha256" / digest


def _check(blob: Path, digest: str) -> None:
    try:
        found = reading.sha256(blob)
    except OSError as error:
        raise ImageError(f"{blob} cannot be read: {error.strerror}") from error
    if found != digest.partition(":")[2]:
        raise ImageError(f"{blob} is not what its name says")


def _json(layout: Path, descriptor: dict[str, Any]) -> dict[str, Any]:
    blob = _blob(layout, descriptor)
    try:
        if blob.stat().st_size > _MAX_JSON_BYTES:
            raise ImageError(f"{blob} is too large for what it should be")
        _check(blob, descriptor["digest"])
        found = json.loads(reading.text(blob, _MAX_JSON_BYTES))
    except OSError as error:
        raise ImageError(f"{blob} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ImageError(f"{blob} is not JSON: {error}") from error
    return found
