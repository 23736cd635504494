"""Commands that start, watch and steer runs."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trialog.cli import output
from trialog.cli.commands.options import All, Limit, Output, RunId, Url, labels_of, run_id_of
from trialog.cli.connection import WATCH_PATIENCE_S, Server, find_server, server
from trialog.cli.exits import INTERRUPTED, NOT_MET, OK
from trialog.cli.output import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trialog.cli.progress import RunProgress
    from trialog.client import TrialogClient
    from trialog.client.models import Event, Run, RunSummary

State = Literal["running", "paused", "completed", "failed", "cancelled"]


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command(epilog="Example: trialog run examples/reference.yaml --set lr=1.0 --watch")(run)
    app.command(epilog="Example: trialog watch r-abcdefghijklmnop")(watch)
    app.command(epilog="Example: trialog runs --state running --label team=blue -o json")(runs)
    app.command(epilog="Example: trialog cancel r-abcdefghijklmnop")(cancel)
    app.command(epilog="Example: trialog pause r-abcdefghijklmnop")(pause)
    app.command(epilog="Example: trialog resume r-abcdefghijklmnop --set budget.usd=5")(resume)


def run(
    file: Annotated[str, typer.Argument(metavar="FILE.yaml", help="Settings; - reads stdin.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Put over the file, e.g. faults.hang=[]."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay until the run has ended; a pause is waited for.")
    ] = False,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """Start a run from a file. With --watch: exit code 0 only for a completed run, else 1."""
    from trialog.cli.runfile import load_run_file
    from trialog.cli.taskfiles import upload_tasks

    body = load_run_file(file, settings or ())
    asked = find_server(url)  # once: a stack that starts meanwhile knows nothing of the run
    with server(asked) as client:
        created = client.create_run(upload_tasks(client, body))
    if watch:
        raise typer.Exit(watch_run(created["run_id"], asked, output_format))
    print_state(created, output_format)


def watch(run: RunId, url: Url = None, output_format: Output = Format.table) -> None:
    """Show a run's progress until it has ended; exit code 0 only for a completed run, else 1.

    A run that is paused, by its budget too, is waited for; how to resume it is told.
    """
    raise typer.Exit(watch_run(run_id_of(run), find_server(url), output_format))


def watch_run(run_id: str, asked: Server, output_format: Format) -> int:
    """Show a run's progress until it has ended, then its state; return the exit code."""
    from trialog.cli.watch import follow, view

    shown = view()
    try:
        with server(asked, patience_s=WATCH_PATIENCE_S, on_wait=shown.waiting) as client:
            seen = follow(_telling_pauses(client, run_id, asked), shown)
            ended = client.get_run(run_id)
    except KeyboardInterrupt:
        output.note(f"the run goes on; see it with: trialog watch {run_id}{asked.option}")
        return INTERRUPTED
    print_state(ended, output_format)
    _tell_unscored(ended, seen, asked)
    return OK if ended["state"] == "completed" else NOT_MET


def _tell_unscored(run: Run, seen: RunProgress, asked: Server) -> None:
    """Tell of trials that ended without a verdict: a mean over the others does not show them."""
    unscored = sum(step.skipped + step.cancelled for step in seen.steps.values())
    if unscored:
        total = sum(step.requested for step in seen.steps.values())
        see = "tasks list" if run["spec"].get("tasks") else "trials"
        where = f"trialog {see} {run['run_id']}{asked.option}"
        output.note(f"{unscored} of {total} trials unscored: {where}")


def _telling_pauses(client: TrialogClient, run_id: str, asked: Server) -> Iterator[Event]:
    """Yield a run's events; where it is paused now, tell how it goes on, for it is waited for."""
    for event in client.watch(run_id):
        yield event
        if event["type"] == "RunPaused" and (run := client.get_run(run_id))["state"] == "paused":
            reason = run["pause_reason"] or ""
            limit = next(
                (n for n in ("judge_calls", "tokens", "usd") if f"budget.{n}" in reason), ""
            )
            more = f" --set budget.{limit}=MORE" if limit else ""
            why = f": {reason}" if reason else ""
            resume = f"trialog resume {run_id}{more}{asked.option}"
            output.note(f"{run_id} is paused{why}; waiting for it, go on with: {resume}")


def runs(
    state: Annotated[State | None, typer.Option("--state", help="Only runs in this state.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="Only runs with this label."),
    ] = None,
    limit: Limit = 20,
    all_: All = False,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """List runs, newest first."""
    labels = labels_of(label)
    found: list[RunSummary] = []
    cursor = None
    with server(url) as client:
        while True:
            page = client.list_runs(
                state=state, labels=labels, limit=None if all_ else limit, cursor=cursor
            )
            found += page["runs"]
            cursor = page["next_cursor"]
            if cursor is None or not all_:
                break
    if output_format is Format.json:
        output.print_json(found)
    else:
        output.print_table(
            ("run", "state", "steps>", "reward>", "rubric", "created", "labels"),
            map(_run_row, found),
            whole=("run", "state", "created"),
            optional=("labels", "rubric", "created"),
        )
    if cursor is not None:
        output.note("there are more: see them with --all")


def _run_row(one: RunSummary) -> tuple[object, ...]:
    return (
        one["run_id"],
        one["state"],
        f"{one['steps_applied']}/{one['n_steps']}",
        one["mean_reward"],
        one["rubric"],
        output.clock_time(one["created_at"]),
        [f"{key}={value}" for key, value in one["labels"].items()],
    )


def cancel(run: RunId, url: Url = None, output_format: Output = Format.table) -> None:
    """End a run: its open trials end cancelled, and what was paid for is kept."""
    with server(url) as client:
        print_state(client.cancel(run_id_of(run)), output_format)


def pause(run: RunId, url: Url = None, output_format: Output = Format.table) -> None:
    """Start nothing new for a run; what is in flight is still recorded."""
    with server(url) as client:
        print_state(client.pause(run_id_of(run)), output_format)


def resume(
    run: RunId,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="budget.KEY=VALUE", help="Another limit; null: none."),
    ] = None,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """Go on with a paused run, under another budget where one is set."""
    limits = None
    if settings:
        from trialog.cli.runfile import load_limits

        limits = load_limits(settings)
    with server(url) as client:
        print_state(client.resume(run_id_of(run), budget=limits), output_format)


def print_state(run: Run, output_format: Format) -> None:
    """Write a run's id and state; as JSON on one line, the last of the output."""
    if output_format is Format.json:
        output.print_json({"run_id": run["run_id"], "state": run["state"]}, one_line=True)
        return
    reason = run.get("failure") or run.get("pause_reason")
    print(f"{run['run_id']} {run['state']}" + (f": {output.visible(reason)}" if reason else ""))
