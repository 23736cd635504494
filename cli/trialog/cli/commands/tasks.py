"""The command that says which tasks can run."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trialog.cli import output
from trialog.cli.commands.options import Output
from trialog.cli.exits import NOT_MET, BadInput
from trialog.cli.output import Format

if TYPE_CHECKING:
    from trialog.proto.tasks.check import Settings, Verdict


def register(group: typer.Typer) -> None:
    """Add the command to the group of those about tasks."""
    group.command(
        epilog="Example: trialog tasks check examples/tasks --set network=public -o json"
    )(check)


def check(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A task, or a folder of tasks.")],
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE.yaml", help="Check for the run of this file."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Check for a run with it: provider, network, images or agent, e.g. agent=oracle.",
        ),
    ] = None,
    output_format: Output = Format.table,
) -> None:
    """Say for each task whether it can run; exit code 0 if all do, else 1. No server is asked."""
    from trialog.cli.taskfiles import read_tasks, tell
    from trialog.proto.tasks.check import verdict_on

    asked = _settings(folder, file, settings or [])
    found = [verdict_on(name, read, asked) for name, read in read_tasks(folder)]
    if output_format is Format.json:
        output.print_json([asdict(one) for one in found])
    else:
        _print(found)
        tell((one.task, one.warnings) for one in found)
        output.note(_closing(found))
    if not all(one.runs for one in found):
        raise typer.Exit(NOT_MET)


def _settings(folder: str, file: str | None, settings: list[str]) -> Settings:
    from trialog.cli.runfile import load_changes, load_run_file
    from trialog.proto.tasks.check import Settings

    given: dict[str, Any]
    if file is not None:
        # A file without tasks is of a run in the reference world, which is another kind.
        given = load_run_file(file, [*settings, f"tasks.path={_quoted(folder)}"])
    else:
        given = load_changes(settings, {})
        _refuse(given)
    known = {
        name: given[name] for name in ("provider", "network", "images", "agent") if name in given
    }
    if file is not None:
        known.setdefault("images", {})
    _tell_absent(known.get("images", {}))
    return Settings(**known)


def _refuse(given: Mapping[str, Any]) -> None:
    """Refuse settings that no run of tasks can have, as the server does. Raises BadInput."""
    from trialog.proto import agents, images

    try:
        images.check(given.get("provider", "bubblewrap"), given.get("images", {}))
        if "agent_options" in given:
            agents.check_options(given.get("agent", ""), given["agent_options"])
    except ValueError as error:
        # The option of an agent is named without the setting that it is in.
        field = "" if str(error).startswith("images.") else "agent_options."
        raise BadInput(f"--set: {field}{error}") from None


def _tell_absent(images: Mapping[str, str]) -> None:
    """Warn of images that are not on this machine: the workers may be on another."""
    from trialog.proto.images import path_of

    for name, source in images.items():
        path = path_of(source)
        if path and not any(Path(one).exists() for one in (path, path.rpartition(":")[0] or path)):
            output.note(f"images.{name}: {path} is not on this machine; workers will look there")


def _quoted(text: str) -> str:
    import json

    return json.dumps(text)


def _print(found: list[Verdict]) -> None:
    rows: list[tuple[str, str, str, str]] = []
    first: dict[tuple[str, str], str] = {}
    for one in found:
        told = first.setdefault((one.reason, one.mend), one.task)
        if one.runs or told == one.task:
            rows.append((one.task, "yes" if one.runs else "no", one.reason, one.mend))
        else:
            rows.append((one.task, "no", f"as {told}", ""))  # what many have is told once
    output.print_table(("task", "runs", "reason", "mend"), rows, whole=("task",))


def _closing(found: list[Verdict]) -> str:
    """Return how many run, as the last line."""
    count, failed = len(found), sum(not one.runs for one in found)
    tasks = "1 task" if count == 1 else f"{count} tasks"
    if not failed:
        return f"{tasks}: {'it runs' if count == 1 else 'all run'}"
    return f"{failed} of {tasks} {'does' if failed == 1 else 'do'} not run"
