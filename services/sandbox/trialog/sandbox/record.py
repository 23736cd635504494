"""A trajectory as it is kept: bytes with everything, and the digest of what it means."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trialog.proto.canonical import bytes_digest, canonical, digest, written_out
from trialog.sandbox.snapshot import Snapshot, SnapshotEntry
from trialog.sandbox.trajectory import atif, turns
from trialog.sandbox.trajectory.atif import Actor
from trialog.sandbox.trajectory.log import Recorder

MAX_FILES = 1_000
MAX_FILE_CHARACTERS = 16_000


class KeptEntry(msgspec.Struct, frozen=True):
    """One path of the final state; ``data`` is base 64."""

    path: str
    kind: str
    size: int = 0
    executable: bool = False
    digest: str = ""
    data: str | None = None


class KeptStep(msgspec.Struct, frozen=True):
    """The try at a task, or at the step of it that ``step`` names. ``atif`` is the blob of its
    document, ``error`` how it ended when not by itself, ``result`` what came of it."""

    step: str | None
    atif: str
    error: str = ""
    message: str = ""
    n_turns: int = 0
    result: dict[str, Any] = {}


class KeptTrajectory(msgspec.Struct, frozen=True):
    """What the trajectory's blob holds.

    Of the reference world also its final ``state``, for verifying again. Of a task, ``turns`` and
    ``files`` are what a judge is shown of them: bounded, with ``n_files`` in all.
    """

    turns: list[dict[str, Any]]
    answer: str | None
    files: list[str]
    state: list[KeptEntry] = []
    n_files: int = 0
    error: str = ""
    steps: list[KeptStep] = []


@dataclass(frozen=True, slots=True)
class Tried:
    """A try that is over, as it is to be kept. ``result`` is JSON, and no part of the meaning;
    ``state`` is the digest of what the sandbox was like then: each step is graded on its own."""

    log: Recorder
    step: str | None = None
    error: str = ""
    message: str = ""
    result: Mapping[str, Any] = field(default_factory=dict[str, Any])
    state: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """A task's trajectory: its blob and the blobs that it names, to be kept before it; the digest
    of its meaning."""

    blob: bytes
    digest: str
    n_turns: int
    documents: tuple[bytes, ...]


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
    blob = _readable({**meaning, "state": state})
    return blob, digest({**meaning, "state": snapshot.digest()})


def keep_task(session_id: str, actor: Actor, tries: Sequence[Tried], final: Snapshot) -> Kept:
    """Return what is kept of a task's tries, in the order of its steps.

    The documents are blobs of their own: who lists trials or judges one reads only the trajectory's
    blob, and token ids make a document of megabytes. The meaning is all that was said and done, how
    each try ended, and the final state: no time, id, count of tokens or cost.
    """
    said = [turns.meaning(each.log, each.step) for each in tries]
    meant = [
        {"step": each.step, "error": each.error, "state": each.state, "turns": its}
        for each, its in zip(tries, said, strict=True)
    ]
    documents = [_document(session_id, actor, each.log) for each in tries]
    files, n_files = _listed(final)
    content: dict[str, Any] = {
        "turns": turns.shown([turn for its in said for turn in its]),
        "answer": None,
        "files": files,
        "n_files": n_files,
        "error": next((each.error for each in tries if each.error), ""),
        "steps": [
            {
                "step": each.step,
                "atif": bytes_digest(document),
                "error": each.error,
                "message": each.message,
                "n_turns": each.log.n_turns,
                "result": dict(each.result),
            }
            for each, document in zip(tries, documents, strict=True)
        ],
    }
    return Kept(
        _readable(content),
        digest({"tries": meant, "state": final.digest()}),
        sum(each.log.n_turns for each in tries),
        tuple(documents),
    )


def read(blob: bytes) -> KeptTrajectory:
    """Return a kept trajectory."""
    return _decoder.decode(blob)


def _document(session_id: str, actor: Actor, log: Recorder) -> bytes:
    document = atif.document(session_id, actor, log)
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:  # a lone surrogate, which a model's text can hold
        return msgspec.json.encode(written_out(document))


def _listed(final: Snapshot) -> tuple[list[str], int]:
    """Return the files to show, the first by name, and how many there are."""
    written = final.files_written()
    shown: list[str] = []
    room = MAX_FILE_CHARACTERS
    for path in written[:MAX_FILES]:
        room -= len(path)
        if room < 0:
            break
        shown.append(path)
    return shown, len(written)


def _readable(content: dict[str, Any]) -> bytes:
    blob = canonical(content)
    try:
        blob.decode()
    except UnicodeDecodeError:
        blob = canonical(written_out(content))
    return blob


def final_state(blob: bytes) -> Snapshot:
    """Return the final state of a kept trajectory."""
    return Snapshot(tuple(_entry(kept) for kept in read(blob).state))


def _entry(kept: KeptEntry) -> SnapshotEntry:
    data = None if kept.data is None else base64.b64decode(kept.data)
    kind: Any = kept.kind
    return SnapshotEntry(kept.path, kind, kept.size, kept.executable, kept.digest, data)
