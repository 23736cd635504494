"""The command that proves on the spot what a run survives."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trialog.cli import output
from trialog.cli.commands.options import Output
from trialog.cli.commands.up import Judges, Sandboxes, Standby, no_stack, options_of, tell
from trialog.cli.connection import server_problem
from trialog.cli.exits import INTERRUPTED, NOT_MET, OK, BadInput, CommandError
from trialog.cli.output import Format

if TYPE_CHECKING:
    from rich.console import Console

    from trialog.cli.claims import Row
    from trialog.cli.demo import Demo
    from trialog.cli.facts import Facts


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog="Example: trialog demo --standby --json demo.json")(demo)


def demo(
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the rows and all figures here too."),
    ] = None,
    sandboxes: Sandboxes = 2,
    judges: Judges = 2,
    standby: Standby = False,
    output_format: Output = Format.table,
) -> None:
    """Run the reference run with every fault on a stack of its own, fork it, check every claim.

    Exit code 1 if a claim fails.
    """
    from trialog.cli.demo import Demo, story
    from trialog.cli.watch import view

    options = options_of(sandboxes=sandboxes, judges=judges, drivers=2 if standby else 1)
    _check_writable(json_file)
    output.note(story())
    facts = _facts(Demo(options, view, tell))
    if facts is None:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(_report(facts, json_file, output_format))


def _facts(one: Demo) -> Facts | None:
    """Run the demo; None when it was interrupted."""
    import asyncio

    from trialog.cli.demo import DemoTimedOut
    from trialog.cli.stack import StackError
    from trialog.cli.stack.signals import stopping_on_signals
    from trialog.client import TrialogError

    async def until_signalled() -> Facts | None:
        with stopping_on_signals():
            return await one.run()
        return None

    try:
        return asyncio.run(until_signalled())
    except StackError as error:
        raise no_stack(error) from error
    except TrialogError as error:
        raise server_problem(error) from error
    except DemoTimedOut as error:
        raise CommandError(str(error)) from error


def _check_writable(path: Path | None) -> None:
    """Fail before the demo, not after it, when its result cannot be written."""
    if path is not None:
        _write(path, "")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--json: cannot write {path}: {error.strerror}") from None


def _report(facts: Facts, json_file: Path | None, output_format: Format) -> int:
    from trialog.cli.claims import check, figures

    rows = check(facts)
    result: dict[str, Any] = {
        "rows": [row.to_json() for row in rows],
        "figures": figures(facts),
    }
    if json_file is not None:
        _write(json_file, json.dumps(result, indent=2) + "\n")
    if output_format is Format.json:
        output.print_json(result)
    else:
        print_rows(rows)
    failed = sum(not row.ok for row in rows)
    if failed:
        output.note(f"{failed} of {len(rows)} claims failed")
    if any(row.timed and not row.ok for row in rows):
        output.note(busy())
    return NOT_MET if failed else OK


def busy() -> str:
    """Return what to make of a limit of time that was missed."""
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    return (
        f"limits of time are for a quiet machine: its load average is {load} on "
        f"{os.cpu_count()} cores; try again when it is quiet, with `make demo` or `trialog demo`"
    )


def print_rows(rows: list[Row], to: Console | None = None) -> None:
    """Write the claims. The verdict comes first: where texts wrap, it shows where a row begins."""
    output.print_table(
        ("ok", "claim", "expected", "measured"),
        (("ok" if row.ok else "FAILED", row.claim, row.expected, row.measured) for row in rows),
        whole=("ok",),
        to=to,
    )
