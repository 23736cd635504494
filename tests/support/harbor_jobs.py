"""The real `harbor` package, in an interpreter of its own: it needs another Python than ours."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.harbor_runner import harbor_python

_LOAD = Path(__file__).with_name("harbor_scan.py")


def interpreter() -> Path:
    """Return the interpreter that has harbor; skips the test where there is none."""
    found = harbor_python()
    if found is None:
        pytest.skip("no harbor here: `sh .ci/harbor` makes an environment with it")
    return found


def load(jobs: Path) -> dict[str, Any]:
    """Return what harbor reads out of a folder of jobs, by its own models and its viewer's scanner:
    a job's config and result, and its trials."""
    done = subprocess.run(
        [str(interpreter()), "-P", str(_LOAD), str(jobs)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
