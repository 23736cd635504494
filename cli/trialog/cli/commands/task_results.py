"""The command that shows how the tasks of a run went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trialog.cli import output
from trialog.cli.commands.options import Output, RunId, Url, run_id_of
from trialog.cli.connection import server
from trialog.cli.output import Format

if TYPE_CHECKING:
    from trialog.client.export_models import TaskResult, TaskTotals

_COLUMNS = ("task", "trials>", "scored>", "unscored>", "reward>", "rewards", "graded", "errors")


def register(group: typer.Typer) -> None:
    """Add the command to the group of those about tasks."""
    group.command("list", epilog="Example: trialog tasks list r-abcdefghijklmnop -o json")(
        list_tasks
    )


def list_tasks(
    run: RunId,
    step: Annotated[int | None, typer.Option("--step", min=0, help="Only this step.")] = None,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """List the tasks of a run with a reward each, and the run's mean over them.

    Means are over trials with a verdict. Those that ended without one are unscored: no zeros.
    """
    with server(url) as client:
        found = client.list_task_results(run_id_of(run), step=step)
    if output_format is Format.json:
        output.print_json(found)
        return
    output.print_table(
        _COLUMNS, map(_row, found["tasks"]), whole=("task",), optional=("rewards", "graded")
    )
    _print_totals(found["totals"])


def _row(task: TaskResult) -> tuple[object, ...]:
    several = len(task["rewards"]) > 1
    return (
        task["task"],
        task["trials"],
        task["scored"],
        task["unscored"],
        _mean(task["mean_reward"]),
        [f"{name}={_mean(value)}" for name, value in task["rewards"].items()] if several else None,
        _counts(task["modes"]),
        _counts(task["errors"]),
    )


def _print_totals(totals: TaskTotals) -> None:
    fields: dict[str, Any] = {
        "mean reward": f"{_mean(totals['mean_reward'])} over {totals['tasks_scored']} of "
        f"{totals['tasks']} tasks",
        "trials": f"{totals['scored']} scored, {totals['unscored']} unscored, "
        f"{totals['open']} open",
    }
    output.print_fields(fields)


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _counts(counts: dict[str, int]) -> list[str]:
    return [name if n == 1 else f"{name} x{n}" for name, n in counts.items()]
