"""The command that shows one trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trialog.cli import output, provenance
from trialog.cli.commands.options import Output, Url, trial_address_of
from trialog.cli.connection import server
from trialog.cli.output import Format

if TYPE_CHECKING:
    from trialog.client.models import TrialDetail


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog="Example: trialog trial r-abcdefghijklmnop/s0-p1-n0")(trial)


def trial(
    trial: Annotated[str, typer.Argument(metavar="RUN/TRIAL", help="A trial of a run.")],
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """Show a trial: its task, its rewards, in what it was graded, and what went wrong."""
    run_id, trial_id = trial_address_of(trial)
    with server(url) as client:
        found = client.get_trial(run_id, trial_id)
    if output_format is Format.json:
        output.print_json({name: value for name, value in found.items() if name != "events"})
        return
    output.print_fields(_fields(found))
    if found["failures"]:
        output.print_table(
            ("failed", "attempt>", "class", "error", "message"),
            (
                (one["stage"], one["n"], one["failure"], one["error"], one["message"])
                for one in found["failures"]
            ),
        )


def _fields(found: TrialDetail) -> dict[str, Any]:
    reason = ": ".join(filter(None, (found["skip_reason"], found["skip_message"])))
    rewards = [f"{name}={value:g}" for name, value in found["rewards"].items()]
    known = {
        "trial": found["trial_id"],
        "task": found["task"],
        "world": found["world_id"],
        "state": found["state"] + (f" ({reason})" if reason else ""),
        "reward": found["reward"],
        "verifier": rewards or found["verified"],
        "graded": found["mode"],
        "error": found["error"],
        "judge": [f"{name}={value:g}" for name, value in found["scores"].items()],
        "attempts": found["attempts"],
        "turns": found["n_turns"],
        "files": found["files_written"],
        "recovered": provenance.recovered(found["provenance"]),
    }
    odd = ("task", "graded", "error", "recovered", "judge")
    return {name: value for name, value in known.items() if value or name not in odd}
