"""A trajectory as it is kept: bytes with everything, and the digest of what it means."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from trialog.proto.canonical import canonical, digest, written_out
from trialog.sandbox.snapshot import Snapshot, SnapshotEntry


class KeptEntry(msgspec.Struct, frozen=True):
    """One path of the final state; ``data`` is base 64."""

    path: str
    kind: str
    size: int = 0
    executable: bool = False
    digest: str = ""
    data: str | None = None


class KeptTrajectory(msgspec.Struct, frozen=True):
    """What the trajectory's blob holds beside its meaning: the final state, for verifying again."""

    turns: list[dict[str, Any]]
    answer: str | None
    files: list[str]
    state: list[KeptEntry] = []


_decoder = msgspec.json.Decoder(KeptTrajectory)


def keep(meaning: dict[str, Any], snapshot: Snapshot) -> tuple[bytes, str]:
    """Return the blob's bytes and the digest of the meaning, the final state's digest in it.

    A name that an agent gave to a file need not be text. The blob is read by many, so it has such
    a name written out; the digest is of the name itself.
    """
    state = [
        {
            "path": entry.path,
            "kind": entry.kind,
            "size": entry.size,
            "executable": entry.executable,
            "digest": entry.digest,
            "data": None if entry.data is None else base64.b64encode(entry.data).decode(),
        }
        for entry in snapshot.entries
    ]
    content = {**meaning, "state": state}
    blob = canonical(content)
    try:
        blob.decode()
    except UnicodeDecodeError:
        blob = canonical(written_out(content))
    return blob, digest({**meaning, "state": snapshot.digest()})


def final_state(blob: bytes) -> Snapshot:
    """Return the final state of a kept trajectory."""
    return Snapshot(tuple(_entry(kept) for kept in _decoder.decode(blob).state))


def _entry(kept: KeptEntry) -> SnapshotEntry:
    data = None if kept.data is None else base64.b64decode(kept.data)
    kind: Any = kept.kind
    return SnapshotEntry(kept.path, kind, kept.size, kept.executable, kept.digest, data)
