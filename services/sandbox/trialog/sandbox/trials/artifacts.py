"""Artifacts on their way from the agent's sandbox to the verifier's, by way of this host.

They come to lie where they lay. What cannot be had (missing, a link, above the limits) stays
behind: the verifier finds it missing, as it would have been.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from trialog.proto.tasks.config import Artifact
from trialog.sandbox.errors import FileRefusedError
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.trials.setup import checked
from trialog.spine import telemetry

MAX_BYTES = 1 << 30
_EMPTY = 'if [ "$1" != / ]; then rm -rf -- "$1"; fi && mkdir -p -- "$1" && chmod 777 -- "$1"'
_PARENT = 'if [ ! -d "$1" ]; then mkdir -p -- "$1" && chmod 777 -- "$1"; fi'


async def carry(
    source: ImageSandbox,
    target: ImageSandbox,
    artifacts: Sequence[Artifact],
    scratch: Path,
    label: str,
) -> None:
    """Copy artifacts from one sandbox to another. Raises TaskError, SandboxError.

    The source's shell and tools are the agent's: none of them is asked, not even what is a folder.
    """
    left = MAX_BYTES
    for n, artifact in enumerate(artifacts):
        path, folder = _absolute(artifact.source), scratch / f"artifact-{n}"
        try:
            pulled = await source.download(path, folder, left, artifact.exclude)
        except FileRefusedError as error:
            telemetry.logger().info("an artifact stays behind", source=path, reason=str(error))
            continue
        left -= sum((folder / name).stat().st_size for name in pulled.files)
        where = path if pulled.is_folder else str(PurePosixPath(path).parent)
        script = _EMPTY if pulled.is_folder else _PARENT
        await checked(target, f"place-{label}-{n}", script, where)
        if folder.is_dir():
            await target.upload(folder, where)


def _absolute(source: str) -> str:
    """A path that begins nowhere begins at the root, where the format's own copying begins."""
    return str(PurePosixPath("/", source))
