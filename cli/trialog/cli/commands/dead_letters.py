"""The command about work that was given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trialog.cli import output
from trialog.cli.commands.options import All, Limit, Output, Url, run_id_of
from trialog.cli.connection import server
from trialog.cli.output import Format

if TYPE_CHECKING:
    from trialog.client.models import DeadLetter


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog="Example: trialog dead-letters --redrive r-abcdefghijklmnop/s0-p0-n0/judge")(
        dead_letters
    )


def dead_letters(
    redrive: Annotated[
        list[str] | None,
        typer.Option("--redrive", metavar="KEY", help="Offer this work again, do not list."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Only work of this run.")
    ] = None,
    limit: Limit = 50,
    all_: All = False,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """List work that was given up because its message could not be handled."""
    if redrive:
        _redrive(redrive, url, output_format)
        return
    run_id = None if run is None else run_id_of(run)
    found: list[DeadLetter] = []
    cursor = None
    with server(url) as client:
        while True:
            size = None if all_ else limit
            page = client.list_dead_letters(run_id=run_id, limit=size, cursor=cursor)
            found += page["dead_letters"]
            cursor = page["next_cursor"]
            if cursor is None or not all_:
                break
    if output_format is Format.json:
        output.print_json(found)
    else:
        output.print_table(("work", "queue", "deliveries>", "since", "error"), map(_row, found))
    if cursor is not None:
        output.note("there are more: see them with --all")


def _row(one: DeadLetter) -> tuple[object, ...]:
    since = one["dead_since"]
    return (
        one["key"],
        one["kind"],
        one["deliveries"],
        None if since is None else output.clock_time(since),
        one["error"],
    )


def _redrive(keys: list[str], url: str | None, output_format: Format) -> None:
    with server(url) as client:
        for key in keys:
            done = client.redrive(key)
            if output_format is Format.json:
                output.print_json(done, one_line=True)
            else:
                when = "soon" if done["run_state"] == "running" else "when its run is resumed"
                print(f"{output.visible(key)} is offered again {when}")
