"""The command that forks a run."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from trialog.cli import output
from trialog.cli.commands.options import Output, RunId, Url, labels_of, run_id_of
from trialog.cli.commands.runs import print_state, watch_run
from trialog.cli.connection import ServerProblem, find_server, server
from trialog.cli.exits import BadInput
from trialog.cli.output import Format

_FILES = (".yaml", ".yml", ".json")

Mode = Literal["recompute", "rescore"]


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command(epilog="Example: trialog fork r-abcdefghijklmnop --rubric v2-efficiency --dry-run")(
        fork
    )


def fork(
    run: RunId,
    rubric: Annotated[
        str | None,
        typer.Option(
            "--rubric",
            metavar="NAME[@VERSION]|FILE",
            help="Another rubric: by name, or a file (.yaml, .json, with a /, or - for stdin).",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. n_steps=6."),
    ] = None,
    from_step: Annotated[
        int | None, typer.Option("--from-step", min=0, help="Keep the steps below it as they are.")
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            "--mode", help="rescore: judge the trajectories anew, train nothing. Default: as RUN."
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="Give the fork a label."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be executed, and its cost.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay until the fork has ended; a pause is waited for.")
    ] = False,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """Start a run from what another has: only what is changed, and what follows, is executed.

    With --watch: exit code 0 only for a completed fork, else 1.
    """
    if dry_run and watch:
        raise BadInput("--watch: there is nothing to watch of a --dry-run")
    run_id = run_id_of(run)
    changes, name = _changes(settings or [], rubric, from_step, labels_of(label))
    asked = find_server(url)  # once: a stack that starts meanwhile knows nothing of the run
    from trialog.cli.taskfiles import upload_tasks

    with _hinting(name), server(asked) as client:
        changes = upload_tasks(client, changes)
        if dry_run:
            plan = client.plan_fork(run_id, changes, rubric=name, mode=mode)
            _print_plan(plan, output_format)
            return
        forked = client.fork(run_id, changes, rubric=name, mode=mode)
    if watch:
        raise typer.Exit(watch_run(forked["run_id"], asked, output_format))
    print_state(forked, output_format)


def _changes(
    settings: list[str], rubric: str | None, from_step: int | None, labels: dict[str, str]
) -> tuple[dict[str, Any], str | None]:
    """Return the body of the request, and the rubric's name where it is given by one."""
    from trialog.cli.runfile import load_changes

    changes = load_changes(settings, labels)
    if from_step is not None:
        if "from_step" in changes:
            raise BadInput("--from-step: is given by --set from_step too")
        changes["from_step"] = from_step
    if rubric is None:
        return changes, None
    if "rubric" in changes:
        raise BadInput("--rubric: is given by --set rubric too")
    if _is_file(rubric):
        from trialog.cli.rubricfile import load_rubric_file

        return changes | {"rubric": load_rubric_file(rubric)}, None
    return changes, _name_of(rubric)


def _is_file(rubric: str) -> bool:
    return rubric == "-" or "/" in rubric or Path(rubric).suffix in _FILES


def _name_of(rubric: str) -> str:
    from trialog.proto.rubric import parse_reference

    try:
        return str(parse_reference(rubric))
    except ValueError as error:
        hint = f"; a file's name ends in {', '.join(_FILES)}" if Path(rubric).exists() else ""
        raise BadInput(f"--rubric: {error}{hint}") from None


@contextlib.contextmanager
def _hinting(name: str | None) -> Generator[None]:
    """Say of a rubric that the server does not know that there is a file of its name."""
    try:
        yield
    except ServerProblem as error:
        from trialog.client import ApiError

        refused = error.__cause__
        wrong = refused.problem.errors if isinstance(refused, ApiError) else ()
        fields = [one.field for one in wrong]
        files = [f"{name}{suffix}" for suffix in ("", *_FILES) if Path(f"{name}{suffix}").is_file()]
        if name is None or "rubric" not in fields or not files:
            raise
        hint = f"for the file write --rubric ./{files[0]}"
        raise ServerProblem(f"{error}; {hint}", error.exit_code) from refused


def _print_plan(plan: Any, output_format: Format) -> None:
    from trialog.cli.plan import print_plan

    if output_format is Format.json:
        output.print_json(plan)
    else:
        print_plan(plan)
