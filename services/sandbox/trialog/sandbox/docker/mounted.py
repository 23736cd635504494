"""The three files that the daemon mounts into every container, over whatever its image has there.

They are in no layer, so they are read and written through PID 1. Nothing inside can remove or
replace them: their content changes, their mode and owner. A state has them where they are not as
they were given, as it would have them without the mounts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import tarfile
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trialog.sandbox.bubblewrap import wire
from trialog.sandbox.errors import ImageError, SnapshotRefusedError
from trialog.sandbox.images import Network
from trialog.sandbox.rootfs import skeleton
from trialog.sandbox.rootfs.guest import Ask
from trialog.sandbox.rootfs.state import OPAQUE, Instead
from trialog.sandbox.rootfs.unpack import inner_path, members

NAMES = tuple(skeleton.NAMES)
_FOLDER = "etc"
_CHUNK_BYTES = 8 << 20
_HEADER = f"SCHILY.xattr.{OPAQUE}"


@dataclass(frozen=True, slots=True)
class Begun:
    """How they were before any command ran: a digest each, of what can be told apart, and those
    that the states have removed. One that is no plain file to PID 1 is not among them."""

    given: Mapping[str, str]
    removed: Collection[str] = ()


async def give(ask: Ask, network: Network) -> Mapping[str, str]:
    """Make them what they are with every provider, and return their digests.

    The daemon's name this host's servers, so what an agent adds to would differ from host to host.
    Where there is a network they are as that needs them.
    """
    texts = skeleton.NAMES if network == "none" else {}
    for name in texts.keys() & (await _plain(ask)).keys():
        await _put(ask, wire.Put("w", f"/{name}", 0o644, texts[name].encode()))
    return {name: await _digest(ask, name, now) for name, now in (await _plain(ask)).items()}


async def restore(ask: Ask, states: Sequence[Path], given: Mapping[str, str]) -> Begun:
    """Make them what states, laid over one another, have in their place. Raises ImageError.

    What was removed is left empty: a mounted file cannot go.
    """
    left = _last(states)
    for name in left.keys() & given.keys():
        try:
            await _write(ask, name, left[name])
        except (tarfile.TarError, OSError, EOFError, KeyError) as error:
            raise ImageError(f"{name} of a state cannot be read: {error}") from error
    removed = [name for name in given if name in left and left[name] is None]
    return Begun(given, removed)


async def disk_bytes(ask: Ask) -> int:
    """Return what they take on the disk."""
    return sum(now.disk_bytes for now in (await _plain(ask)).values())


@contextlib.asynccontextmanager
async def changed(
    ask: Ask, begun: Begun, aside: IO[bytes], limit_bytes: int
) -> AsyncGenerator[Instead]:
    """Open an archive of those that are not as they were given, for the length of the block.

    All inside must stand still. Raises SnapshotRefusedError above the limit.
    """
    plain = await _plain(ask)
    with tarfile.open(fileobj=aside, mode="w", format=tarfile.PAX_FORMAT) as out:
        for name, now in plain.items():
            if now.size > limit_bytes:
                raise SnapshotRefusedError(f"more than {limit_bytes} bytes were left")
            if name in begun.removed and now.size == 0:
                out.addfile(_member(name, tarfile.CHRTYPE))
            elif begun.given.get(name) != await _digest(ask, name, now):
                await _add(ask, out, name, now)
    aside.seek(0)
    with tarfile.open(fileobj=aside, mode="r:") as archive:
        yield Instead(tuple(plain), archive)


async def _add(ask: Ask, out: tarfile.TarFile, name: str, now: wire.Stat) -> None:
    [folder] = wire.stats(await ask(wire.stat_request([f"/{_FOLDER}"])))
    out.addfile(_member(_FOLDER, tarfile.DIRTYPE, folder))
    with tempfile.TemporaryFile() as content:
        async for chunk in _chunks(ask, name, now.size):
            content.write(chunk)
        content.seek(0)
        await asyncio.to_thread(out.addfile, _member(name, tarfile.REGTYPE, now), content)


def _member(name: str, kind: bytes, now: wire.Stat | None = None) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    if now is not None:
        member.mode, member.uid, member.gid, member.mtime = now.mode, now.uid, now.gid, now.mtime
        member.size = now.size if kind == tarfile.REGTYPE else 0
    return member


async def _plain(ask: Ask) -> dict[str, wire.Stat]:
    """Return those that are plain files, as they should be: elsewhere nothing is mounted there."""
    found = wire.stats(await ask(wire.stat_request([f"/{name}" for name in NAMES])))
    return {name: now for name, now in zip(NAMES, found, strict=True) if now.kind == "f"}


async def _digest(ask: Ask, name: str, now: wire.Stat) -> str:
    digest = hashlib.sha256(f"{now.mode} {now.uid} {now.gid} ".encode())
    async for chunk in _chunks(ask, name, now.size):
        digest.update(chunk)
    return digest.hexdigest()


async def _chunks(ask: Ask, name: str, size: int) -> AsyncIterator[bytes]:
    """Yield a file's bytes, as many as it had; one that became shorter ends in zeros."""
    for offset in range(0, size, _CHUNK_BYTES):
        length = min(_CHUNK_BYTES, size - offset)
        reply = await ask(wire.chunk_request(f"/{name}", offset, length))
        yield wire.file_bytes(name, reply).ljust(length, b"\0")


@dataclass(frozen=True, slots=True)
class _Left:
    """A file in a state; of a hard link, the member that it leads to."""

    state: Path
    member: tarfile.TarInfo


def _last(states: Sequence[Path]) -> dict[str, _Left | None]:
    """Return what states have in their place at last, None: removed. Raises ImageError."""
    found: dict[str, _Left | None] = {}
    for state in states:
        try:
            with tarfile.open(state, "r:") as archive:
                for member in members(archive, f"state {state.name}"):
                    found.update(_said(archive, member, state))
        except (tarfile.TarError, OSError, EOFError, KeyError) as error:
            raise ImageError(f"state {state} cannot be unpacked: {error}") from error
    return found


def _said(
    archive: tarfile.TarFile, member: tarfile.TarInfo, state: Path
) -> Iterator[tuple[str, _Left | None]]:
    path = inner_path(member.name)
    if path == _FOLDER and (_HEADER in member.pax_headers or not member.isdir()):
        yield from dict.fromkeys(NAMES).items()
    if path not in NAMES:
        return
    if member.ischr():
        yield path, None
    elif member.isreg() or member.islnk():
        linked = archive.getmember(member.linkname) if member.islnk() else member
        yield path, _Left(state, linked)
    else:
        raise ImageError(
            f"state {state.name} has no plain file at {path}, where a Docker daemon mounts one: "
            "it can only be started by bubblewrap"
        )


async def _write(ask: Ask, name: str, left: _Left | None) -> None:
    if left is None:
        await _put(ask, wire.Put("w", f"/{name}", 0o644))
        return
    member = left.member
    with tarfile.open(left.state, "r:") as archive:
        content = archive.extractfile(member)
        assert content is not None, "a regular file has content"
        kind = "w"
        while (data := content.read(_CHUNK_BYTES)) or kind == "w":
            await _put(ask, wire.Put(kind, f"/{name}", member.mode, data, member.uid, member.gid))
            kind = "a"


async def _put(ask: Ask, entry: wire.Put) -> None:
    wire.file_bytes(entry.path, await ask(wire.put_request([entry.encoded()])))
