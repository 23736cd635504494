"""The rows of the verifier's outcome table as task folders: tests/tasks/base with a row over it."""

from __future__ import annotations

import shutil
from pathlib import Path

TASKS = Path(__file__).parents[1] / "tasks"
EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks"


def rows() -> list[str]:
    """Return the names of all rows, in order."""
    return sorted(folder.name for folder in (TASKS / "outcomes").iterdir())


def put(row: str, folder: Path) -> Path:
    """Write a row's whole task to ``folder/row`` and return where it is.

    A row with steps has tests, solutions and instructions of its own in each of them.
    """
    target = folder / row
    own = TASKS / "outcomes" / row
    whole = not (own / "steps").exists()
    shutil.copytree(
        TASKS / "base" if whole else TASKS / "base" / "environment",
        target if whole else target / "environment",
    )
    shutil.copytree(own, target, dirs_exist_ok=True)
    return target


def put_all(folder: Path) -> list[str]:
    """Write all rows below a folder and return their names."""
    names = rows()
    for row in names:
        put(row, folder)
    return names
