"""Keeping the state of a sandbox, before anybody grades it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.snapshot import Snapshot
from trialog.sandbox.trials.trial import Trial

# A state is an archive: headers come on top of what the disk's limit lets an agent write.
_HEADERS_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Saved:
    """A state that is kept. ``inline`` is to go into the transaction that names it."""

    blob: str
    inline: Sequence[bytes]
    snapshot: Snapshot


async def save(trial: Trial, sandbox: ImageSandbox, stage: int) -> Saved:
    """Keep what differs from the image. Raises SnapshotRefusedError, SandboxError."""
    path = trial.state_file(stage)
    limit = trial.plan.place.limits.disk_bytes + _HEADERS_BYTES
    snapshot = await sandbox.save(path, limit)
    blob, inline = await trial.host.blobs.stage_file(path)
    return Saved(blob, inline, snapshot)
