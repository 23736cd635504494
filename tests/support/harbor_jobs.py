"""The real `harbor` package, in an interpreter of its own: it needs another Python than ours."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

HOME = Path(__file__).parents[2] / ".venv-harbor" / "bin" / "python"
_LOAD = Path(__file__).with_name("harbor_scan.py")


def interpreter() -> str:
    """Return the interpreter that has harbor; skips the test where there is none."""
    found = os.environ.get("TRIALOG_HARBOR_PYTHON") or str(HOME)
    if not Path(found).exists():
        pytest.skip("no harbor here: TRIALOG_HARBOR_PYTHON names an interpreter that has it")
    return found


def load(jobs: Path) -> dict[str, Any]:
    """Return what harbor reads out of a folder of jobs, by its own models and its viewer's scanner:
    a job's config and result, and its trials."""
    done = subprocess.run(
        [interpreter(), "-P", str(_LOAD), str(jobs)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
