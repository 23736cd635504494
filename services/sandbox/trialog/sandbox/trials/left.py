"""What a verifier left behind, as a blob: small, and the same bytes for the same files."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

from trialog.sandbox.errors import SandboxError
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.trials.plan import VERIFIER_LOGS
from trialog.spine import telemetry

MAX_BYTES = 16 << 20
_LEFT_OUT = "left-out.txt"


async def take(sandbox: ImageSandbox, folder: Path) -> None:
    """Copy what lies in /logs/verifier into a folder, as far as it is bounded.

    Whatever fails here fails no trial: the rewards are read apart from it.
    """
    try:
        pulled = await sandbox.download(VERIFIER_LOGS, folder, MAX_BYTES)
        if pulled.refused:
            named = "".join(f"{path}: {reason}\n" for path, reason in pulled.refused[:100])
            (folder / _LEFT_OUT).write_text(named, "utf-8", "backslashreplace")
    except (SandboxError, OSError) as error:
        telemetry.logger().warning("a verifier's folder cannot be kept", reason=str(error))


def pack(folder: Path) -> bytes:
    """Return a folder's files as tar.gz, in order of their names and without times or owners."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=6, mtime=0) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                _add(tar, folder, path)
    return packed.getvalue()


def _add(tar: tarfile.TarFile, folder: Path, path: Path) -> None:
    entry = tarfile.TarInfo(str(path.relative_to(folder)))
    entry.size = path.stat().st_size
    entry.mode = 0o644
    with path.open("rb") as content:
        tar.addfile(entry, content)


def unpack(packed: bytes, folder: Path) -> None:
    """Write the files of a blob that ``pack`` made into a folder.

    One that does not fit there is left out: the rewards beside it count all the same.
    """
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz", errorlevel=0) as tar:
        tar.extractall(folder, filter="data")
