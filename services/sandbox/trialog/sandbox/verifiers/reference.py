"""The reference verifier: is the answer the pristine world's digest?

It reads the world as it was built and the answer from the snapshot, never the fork's documents: an
agent that rewrites a document in its fork has not found the secret.
"""

from __future__ import annotations

from dataclasses import dataclass

from trialog.sandbox.agents.policy import ANSWER
from trialog.sandbox.errors import FileRefusedError
from trialog.sandbox.snapshot import Snapshot
from trialog.sandbox.worlds.reference import ReferenceWorld


@dataclass(frozen=True, slots=True)
class Verification:
    """``found_doc`` is the document that holds the secret when the answer is right, else None."""

    verified: bool
    found_doc: int | None


def verify(world: ReferenceWorld, snapshot: Snapshot) -> Verification:
    """Compare the written answer with the world's secret; no answer is a wrong answer."""
    try:
        answer = snapshot.read(ANSWER)
    except FileRefusedError:
        return Verification(False, None)
    verified = answer == world.secret_sha256.encode()
    return Verification(verified, world.secret_doc if verified else None)
