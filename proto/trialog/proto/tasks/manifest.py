"""The tasks of a run, by content: what its keys hold and where each task's files are kept.

A run names its manifest by digest (RunSpec.tasks.manifest); the manifest is a blob. A task has one
digest for each of its readers, so that a change is seen only by the actions that depend on it:
other tests run the verifier again and no agent.
"""

from __future__ import annotations

import msgspec

from trialog.proto.canonical import canonical


class TaskRef(msgspec.Struct, frozen=True):
    """One task. ``blob`` is the digest of its packed folder; the others are of its parts:

    - ``environment``: what its sandbox is made from (environment/ and [environment]);
    - ``agent``: what the agent is given (instructions, [agent], steps in their order);
    - ``solution``: what the oracle is given (solution/ and [solution]);
    - ``verifier``: what grades it (tests/, [verifier], artifacts, gates and reward strategy).
    """

    name: str
    blob: str
    environment: str
    agent: str
    solution: str
    verifier: str


Manifest = tuple[TaskRef, ...]
"""Tasks in their order: a task's place is its world's number, ``w<place>``."""

_decoder = msgspec.json.Decoder(Manifest)


def encode(tasks: Manifest) -> bytes:
    """Return the canonical JSON text whose digest names the manifest."""
    return canonical([msgspec.to_builtins(task) for task in tasks])


def decode(blob: bytes) -> Manifest:
    """Return the tasks of a manifest's bytes. Raises msgspec.ValidationError."""
    return _decoder.decode(blob)
