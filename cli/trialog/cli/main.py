"""Entry point of the ``trialog`` command. What a command needs is imported when it runs."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

import typer

from trialog.cli import exits, output
from trialog.cli.commands import (
    compare,
    dead_letters,
    demo,
    export,
    fork,
    lineage,
    results,
    rubrics,
    runs,
    task_group,
    task_results,
    tasks,
    trial,
    up,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("trialog"))
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show it."),
    ] = False,
) -> None:
    """Durable agentic RL runs: nothing that was paid for is ever paid for twice."""


def build_app() -> typer.Typer:
    """Return the application with all commands."""
    app = typer.Typer(
        name="trialog",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="rich",
        epilog=exits.HELP,
    )
    app.callback(epilog=exits.HELP)(_options)
    runs.register(app)
    fork.register(app)
    results.register(app)
    trial.register(app)
    compare.register(app)
    export.register(app)
    tasks_group = task_group.register(app)
    task_results.register(tasks_group)
    tasks.register(tasks_group)
    lineage.register(app)
    rubrics.register(app)
    dead_letters.register(app)
    up.register(app)
    demo.register(app)
    return app


def run() -> None:
    """Run the command line and exit with its code (trialog.cli.exits)."""
    code = _run()
    if not output.flush():
        code = exits.PIPE_CLOSED
    sys.exit(code)


def _run() -> int | str | None:
    """Run the command and return what it exits with."""
    try:
        build_app()()
    except exits.CommandError as error:
        with contextlib.suppress(BrokenPipeError):  # then there is nobody to tell
            output.note(f"trialog: {error}")
        return error.exit_code
    except SystemExit as end:
        # Typer and rich make exit code 1 of a closed pipe, which would say that the run failed.
        return exits.PIPE_CLOSED if isinstance(end.__context__, BrokenPipeError) else end.code
    return exits.OK


if __name__ == "__main__":
    run()
