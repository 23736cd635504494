"""Unpacks an archive of the server's into a new folder: regular files only, names checked.

What is in them was written by agents, and the server is believed no more than it must be.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import BinaryIO

from trialog.cli import output
from trialog.cli.exits import SERVER_ERROR, CommandError

MOST_FILES = 30_000
MOST_BYTES = 2 << 30
_MOST_DEPTH = 80


class UnsafeArchive(CommandError):
    """The server sent an archive that is not unpacked."""

    exit_code = SERVER_ERROR


def unpack(source: BinaryIO, folder: Path) -> None:
    """Write the files of an archive into a folder that is made for them. Raises UnsafeArchive, and
    OSError when the disk does not take them; then the folder is half full."""
    source.seek(0)
    folder.mkdir()
    room = MOST_BYTES
    try:
        with tarfile.open(fileobj=source, mode="r:") as archive:
            for number, member in enumerate(archive):
                room -= member.size
                if number >= MOST_FILES or room < 0:
                    raise UnsafeArchive(f"{_shown(member)}: the archive is above its limits")
                _write(archive, member, folder)
    except (tarfile.TarError, EOFError) as error:
        raise UnsafeArchive(f"the server sent a broken archive: {error}") from error


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    parts = member.name.split("/")
    odd = any(part in ("", ".", "..") or not part.isprintable() for part in parts)
    if odd or "\\" in member.name or len(parts) > _MOST_DEPTH or not member.isreg():
        raise UnsafeArchive(f"{_shown(member)}: the server sent what is no plain file")
    content = archive.extractfile(member)
    if content is None:
        raise UnsafeArchive(f"{_shown(member)}: the server sent a file without content")
    path = folder.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The folder is new and holds no link, so no name leads out of it; a second file of a name is
    # refused by the mode.
    try:
        with content, path.open("xb") as file:
            shutil.copyfileobj(content, file)
    except FileExistsError:
        raise UnsafeArchive(f"{_shown(member)}: the server sent it twice") from None


def _shown(member: tarfile.TarInfo) -> str:
    return output.visible(member.name.encode(errors="backslashreplace").decode()[:200])
