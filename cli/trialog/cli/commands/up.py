"""The command that runs the embedded stack in the foreground."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trialog.cli import discovery, output
from trialog.cli.commands.options import Output
from trialog.cli.exits import BadInput, NoStack
from trialog.cli.output import Format

if TYPE_CHECKING:
    from trialog.cli.stack import Stack, StackError, StackEvent, StackOptions

DEFAULT_PORT = 8321
_COUNT_PANEL = "Size"

Sandboxes = Annotated[
    int,
    typer.Option(min=1, max=64, help="Sandbox processes.", rich_help_panel=_COUNT_PANEL),
]
Judges = Annotated[
    int, typer.Option(min=1, max=64, help="Judge processes.", rich_help_panel=_COUNT_PANEL)
]
Standby = Annotated[
    bool,
    typer.Option(
        "--standby", help="A second driver that waits, warm.", rich_help_panel=_COUNT_PANEL
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Keep everything here; default: keep nothing."),
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog="Example: trialog up --data ./trialog-data --sandboxes 4 --standby")(up)


def up(
    data: Data = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="The API's port, 0 for a free one; default: 8321 if it is free."
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="The API's address; any but loopback demands a key in TRIALOG_API_KEY."),
    ] = "127.0.0.1",
    sandboxes: Sandboxes = 2,
    judges: Judges = 2,
    standby: Standby = False,
    output_format: Output = Format.table,
) -> None:
    """Run the whole stack in the foreground until Ctrl-C: Postgres, NATS, Ray and the services."""
    import asyncio

    from trialog.cli.stack import StackError

    settings: dict[str, Any] = {
        "data_dir": data,
        "api_host": host,
        "api_port": free_default(host) if port is None else port,
        "api_key": os.environ.get("TRIALOG_API_KEY") or None,
        "sandboxes": sandboxes,
        "judges": judges,
        "drivers": 2 if standby else 1,
    }
    try:
        asyncio.run(_serve(options_of(**settings), output_format))
    except StackError as error:
        raise no_stack(error) from error


def free_default(host: str) -> int:
    """Return the default port when it is free, else 0, which means any free one."""
    from trialog.cli.stack.ports import is_free

    return DEFAULT_PORT if is_free(DEFAULT_PORT, host) else 0


def options_of(**settings: Any) -> StackOptions:
    """Return checked options of a stack; raises BadInput."""
    from trialog.cli.stack import BadStackOptions, StackOptions

    options = StackOptions(**settings)
    try:
        options.check()
    except BadStackOptions as error:
        raise BadInput(str(error)) from None
    return options


def no_stack(error: StackError) -> NoStack:
    """Return the command's error for a stack that did not start."""
    return NoStack(f"the embedded stack did not start: {error}")


def tell(event: StackEvent) -> None:
    """Tell about a process that ended without having been asked to."""
    if event.kind == "restarting":
        code = event.returncode or 0
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        output.note(f"{event.name} (pid {event.pid}) {how}: starting it again")


async def _serve(options: StackOptions, output_format: Format) -> None:
    import asyncio

    from trialog.cli.stack import Stack
    from trialog.cli.stack.signals import stopping_on_signals

    with stopping_on_signals():
        output.note("starting the stack ...")
        async with Stack(options, tell) as stack:
            await stack.ready()
            running = discovery.RunningStack(stack.api_url, os.getpid(), str(stack.layout.root))
            found_at = discovery.announce(running)
            try:
                _print_ready(stack, output_format)
                await asyncio.Event().wait()
            finally:
                discovery.withdraw(found_at)
                output.note("stopping the stack ...")


def _print_ready(stack: Stack, output_format: Format) -> None:
    kept = stack.options.data_dir is not None
    if output_format is Format.json:
        facts: dict[str, Any] = {
            "url": stack.api_url,
            "pid": os.getpid(),
            "data": str(stack.layout.root),
            "kept": kept,
            "processes": {name: state.pid for name, state in stack.processes.items()},
        }
        output.print_json(facts, one_line=True)
        return
    output.print_fields(
        {
            "API": stack.api_url,
            "reference": f"{stack.api_url}/openapi.json",
            "metrics": f"{stack.api_url}/metrics",
            "data": f"{stack.layout.root}" + ("" if kept else " (deleted at the end)"),
            "logs": str(stack.layout.logs),
            "processes": list(stack.processes),
        }
    )
    key = " (with TRIALOG_API_KEY set)" if stack.options.api_key else ""
    print(f"\nIn another terminal{key}: trialog run examples/reference.yaml --watch")
    print("Ctrl-C stops everything.", flush=True)
