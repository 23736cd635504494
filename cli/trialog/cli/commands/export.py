"""The command that writes what a run has made to the disk."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trialog.cli import output
from trialog.cli.commands.options import RunId, Url, run_id_of
from trialog.cli.connection import server
from trialog.cli.exits import BadInput

if TYPE_CHECKING:
    from trialog.cli.export.rows import Written
    from trialog.client import TrialogClient
    from trialog.client.export_models import TaskTotals


class Kind(StrEnum):
    """What a run is written as."""

    harbor = "harbor"
    jsonl = "jsonl"
    parquet = "parquet"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog="Example: trialog export r-abcdefghijklmnop --format harbor -o ./job")(
        export
    )


def export(
    run: RunId,
    kind: Annotated[
        Kind,
        typer.Option(
            "--format",
            help="harbor: a folder a trial; jsonl, parquet: a row a trial, for training.",
        ),
    ] = Kind.harbor,
    to: Annotated[
        str | None,
        typer.Option(
            "-o",
            metavar="PATH",
            help="A new folder (harbor) or file; - is standard output (jsonl, the default).",
        ),
    ] = None,
    step: Annotated[int | None, typer.Option("--step", min=0, help="Only this step.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Rows also of trials without a verdict.")
    ] = False,
    url: Url = None,
) -> None:
    """Write a run's trials as folders of the Harbor format, or as rows for training.

    Nothing that is there is overwritten. An export of folders that was interrupted, or of a run
    that went on, goes on where it was.
    """
    run_id = run_id_of(run)
    if kind is not Kind.jsonl and to in (None, "-"):
        raise BadInput(f"-o: --format {kind.value} needs a path")
    with server(url) as client:
        if kind is Kind.harbor:
            _folders(client, run_id, Path(to or ""), step)
        else:
            _rows(client, run_id, kind, to or "-", step, all_)


def _folders(client: TrialogClient, run_id: str, folder: Path, step: int | None) -> None:
    from trialog.cli.export.folders import export_folders

    done = export_folders(client, run_id, folder, step)
    known = f", {done.known} were there" if done.known else ""
    output.note(f"{folder}: {done.new} trials exported{known}")
    if done.open:
        output.note(f"{done.open} have not ended: export again when they have")


def _rows(
    client: TrialogClient, run_id: str, kind: Kind, to: str, step: int | None, unscored: bool
) -> None:
    from trialog.cli.export import rows

    totals = client.list_task_results(run_id, step=step)["totals"]
    total = totals["scored"] + (totals["unscored"] if unscored else 0)
    opened = rows.parquet(to) if kind is Kind.parquet else rows.json_lines(to)
    with opened as writer:
        written = rows.export_rows(
            client, run_id, writer, step=step, unscored=unscored, total=total
        )
    _tell(written, totals, unscored)


def _tell(written: Written, totals: TaskTotals, unscored: bool) -> None:
    output.note(f"{written.rows} rows written")
    if totals["unscored"] and not unscored:
        output.note(f"{totals['unscored']} trials without a verdict left out; --all has them")
    if totals["open"]:
        output.note(f"{totals['open']} trials have not ended")
    if written.without_tokens:
        output.note(f"{written.without_tokens} rows have no token ids: none were recorded")
    if written.in_segments:
        output.note(f"{written.in_segments} rows are of several sequences, in their segments")
