"""What the programs around a trial said: its tests, and an agent's own code that broke."""

from __future__ import annotations

import tarfile
import tempfile
from typing import TYPE_CHECKING

from trialog.cli import output

if TYPE_CHECKING:
    from trialog.client import TrialogClient

_EXCEPTION = "exception.txt"
_FILES = ("test-stdout.txt", _EXCEPTION)
_MOST_BYTES = 16 << 10
_MOST_FILES = 50


def said_in(client: TrialogClient, run_id: str, trial_id: str) -> dict[str, str]:
    """Return the ends of the texts by their paths in the trial's export, each traceback once."""
    found: dict[str, str] = {}
    with tempfile.TemporaryFile() as file:
        client.download_files(run_id, trial_id, to=file)
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                parts = member.name.split("/")
                if not member.isreg() or not _is_said(parts) or len(found) == _MOST_FILES:
                    continue
                text = _end_of(tar, member)
                # One line is the error that is shown beside it anyhow.
                is_known = text.count("\n") < 2 or text in found.values()
                if not (parts[-1] == _EXCEPTION and is_known):
                    found[member.name] = text
    return found


def _is_said(parts: list[str]) -> bool:
    """An agent's own files may have these names, too: they lie elsewhere."""
    is_ours = not {"agent", "artifacts"} & set(parts[:-1])
    return is_ours and parts[-1] in _FILES


def _end_of(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    content = tar.extractfile(member)
    if content is None:
        return ""
    left_out = max(0, member.size - _MOST_BYTES)
    content.seek(left_out)
    text = content.read().decode("utf-8", "replace")
    return f"[{left_out} bytes before: trialog export has them]\n{text}" if left_out else text


def print_said(found: dict[str, str]) -> None:
    """Write the texts, each below its path; no control character reaches the terminal."""
    for path, text in found.items():
        print(f"\n{output.visible(path)}")
        for line in text.splitlines() or ["(nothing)"]:
            print(f"    {output.visible(line, keep=chr(9))}".rstrip())
