"""A run as a job of the Harbor format: a folder a trial, with the job's own files above them.

A trial's folder appears whole, under its name, or not at all; what was exported before is left as
it is, so an export that was interrupted goes on where it was.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trialog.cli.exits import BadInput
from trialog.cli.export.progress import Progress
from trialog.cli.export.unpack import unpack
from trialog.proto.ids import parse_trial_id

if TYPE_CHECKING:
    from trialog.client import TrialogClient

ENDED = frozenset({"judged", "skipped", "cancelled"})
JOB_FILES = ("config.json", "result.json")
_IN_MEMORY = 8 << 20
_PAGE = 200  # a page holds what each trial's agent did


class Exported(NamedTuple):
    """How many trials were exported now, were there before, and have not ended yet."""

    new: int
    known: int
    open: int


def export_folders(
    client: TrialogClient, run_id: str, folder: Path, step: int | None = None
) -> Exported:
    """Write a run's ended trials below a folder. Raises BadInput when the folder holds something
    else."""
    totals = client.list_task_results(run_id, step=step)["totals"]
    _prepare(client, run_id, folder)
    progress = Progress("trials exported", totals["trials"] - totals["open"])
    new = known = n_open = 0
    for trial_id, state in _trials(client, run_id, step):
        if state not in ENDED:
            n_open += 1
        elif _is_there(folder, run_id, trial_id):
            known += 1
            progress.add()
        else:
            _export(client, run_id, trial_id, folder)
            new += 1
            progress.add()
    _write_job(client, run_id, folder)
    return Exported(new, known, n_open)


def _prepare(client: TrialogClient, run_id: str, folder: Path) -> None:
    """Make the folder, or see that it is an export of this run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = next(folder.iterdir(), None) is not None
    except OSError as error:
        raise BadInput(f"-o {folder}: {error.strerror}") from None
    if there and _named(folder / "config.json", "job_name") != run_id:
        raise BadInput(
            f"-o {folder}: is not empty and no export of {run_id}; nothing was written there. "
            "Name a folder that is empty or new."
        )
    for partial in folder.glob(".partial-*"):  # of an export that was interrupted
        shutil.rmtree(partial)
    if not there:
        _write_job(client, run_id, folder)


def _write_job(client: TrialogClient, run_id: str, folder: Path) -> None:
    """Put the job's files in place, each whole; what they say changes as trials end."""
    aside = folder / ".partial-job"
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as archive:
        client.download_files(run_id, to=archive)  # pyright: ignore[reportArgumentType] - is one
        unpack(archive, aside)  # pyright: ignore[reportArgumentType]
    for name in JOB_FILES:
        (aside / name).replace(folder / name)
    aside.rmdir()


def _export(client: TrialogClient, run_id: str, trial_id: str, folder: Path) -> None:
    aside = folder / f".partial-{trial_id}"
    try:
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as archive:
            client.download_files(run_id, trial_id, to=archive)  # pyright: ignore[reportArgumentType]
            unpack(archive, aside)  # pyright: ignore[reportArgumentType]
        aside.rename(folder / trial_id)
    except BaseException:  # also when the user interrupts: half a folder is none
        with contextlib.suppress(OSError):
            shutil.rmtree(aside)
        raise


def _is_there(folder: Path, run_id: str, trial_id: str) -> bool:
    """Whether a trial was exported before. Raises BadInput for something else of its name."""
    path = folder / trial_id
    if not path.exists() and not path.is_symlink():
        return False
    if _named(path / "result.json", "trial_uri") != f"trialog://{run_id}/{trial_id}":
        raise BadInput(f"{path}: is no export of {run_id}/{trial_id}; move it away")
    return True


def _named(path: Path, key: str) -> Any:
    """Return what a JSON file has under a key, None for one that is not there or is none."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found.get(key) if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _trials(client: TrialogClient, run_id: str, step: int | None) -> Iterator[tuple[str, str]]:
    """Yield trials and their states, page by page; the ids are checked, they name folders."""
    cursor = None
    while True:
        page = client.list_trials(run_id, step=step, limit=_PAGE, cursor=cursor)
        for trial in page["trials"]:
            yield str(parse_trial_id(trial["trial_id"])), trial["state"]
        cursor = page["next_cursor"]
        if cursor is None:
            return
