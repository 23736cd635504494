"""The reference world: eight small documents, one of which holds a secret's digest.

A world is a function of its id and the run's seed alone (rules: docs, golden numbers).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from trialog.proto.policy import N_DOCS
from trialog.proto.seeds import generator
from trialog.sandbox.worlds.archive import pack

DIGEST_FIELD = "secret_sha256"


@dataclass(frozen=True, slots=True)
class ReferenceWorld:
    """A world and what only its verifier may know: the secret's document and digest."""

    world_id: str
    secret_doc: int
    secret_sha256: str
    docs: tuple[str, ...]

    def files(self) -> dict[str, bytes]:
        """Return the content by path, relative to the world."""
        return {doc_path(i): text.encode() for i, text in enumerate(self.docs)}

    def tar_bytes(self) -> bytes:
        """Return the content as an archive: the same bytes on any machine."""
        return pack(self.files())

    def digest(self) -> str:
        """Return the hex SHA-256 of ``tar_bytes()``, the world's name by content."""
        return hashlib.sha256(self.tar_bytes()).hexdigest()


def build(world_id: str, run_seed: int | None = None) -> ReferenceWorld:
    """Return the world of an id; the draws and their order are the rule, do not reorder them."""
    draw = generator("world", world_id, run_seed=run_seed)
    secret_doc = draw.randrange(N_DOCS)
    secret = f"{world_id}-secret-{draw.randrange(10**6):06d}"
    sha256 = hashlib.sha256(secret.encode()).hexdigest()
    docs = tuple(_doc(world_id, i, sha256 if i == secret_doc else None) for i in range(N_DOCS))
    return ReferenceWorld(world_id, secret_doc, sha256, docs)


def doc_path(index: int) -> str:
    """Return where a document lies in its world."""
    return f"docs/doc-{index}.txt"


def secret_in(text: str) -> str | None:
    """Return the digest a document holds, or None."""
    for line in text.splitlines():
        key, _, value = line.partition(": ")
        if key == DIGEST_FIELD:
            return value.strip()
    return None


def _doc(world_id: str, index: int, secret_sha256: str | None) -> str:
    lines = [
        f"title: Document {index} of {world_id}",
        f"owner: team-{index % 3}",
        f"pages: {10 + index}",
    ]
    if secret_sha256 is not None:
        lines.append(f"{DIGEST_FIELD}: {secret_sha256}")
    return "\n".join(lines) + "\n"
