"""The command that shows one trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trialog.cli import output, provenance
from trialog.cli.commands.options import Output, Url, trial_address_of
from trialog.cli.connection import server
from trialog.cli.export.said import print_said, said_in
from trialog.cli.output import Format

if TYPE_CHECKING:
    from trialog.client.models import TaskStep, TrialDetail


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog="Example: trialog trial r-abcdefghijklmnop/s0-p1-n0")(trial)


def trial(
    trial: Annotated[str, typer.Argument(metavar="RUN/TRIAL", help="A trial of a run.")],
    logs: Annotated[
        bool,
        typer.Option("--logs", help="Also what its tests wrote, and where an agent's code broke."),
    ] = False,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """Show a trial: its task, its rewards, in what it was graded, and what went wrong."""
    run_id, trial_id = trial_address_of(trial)
    with server(url) as client:
        found = client.get_trial(run_id, trial_id)
        texts = said_in(client, run_id, trial_id) if logs else {}
    if output_format is Format.json:
        shown = {name: value for name, value in found.items() if name != "events"}
        output.print_json(shown | ({"logs": texts} if logs else {}))
        return
    output.print_fields(_fields(found))
    if found["steps"]:
        _print_steps(found["steps"])
    if found["failures"]:
        output.print_table(
            ("failed", "attempt>", "class", "error", "message"),
            (
                (
                    one["stage"],
                    one["n"],
                    one["failure"],
                    one["error"],
                    output.one_line(one["message"]),
                )
                for one in found["failures"]
            ),
        )
    if logs:
        print_said(texts)
    elif found["task"] is not None and found["state"] in ("judged", "skipped"):
        output.note(f"{_logs(found)}: trialog trial {run_id}/{trial_id} --logs")


def _logs(found: TrialDetail) -> str:
    """Return what the logs of a trial show."""
    broke = any(
        (one["stage"], one["failure"]) == ("generate", "agent") for one in found["failures"]
    )
    return "where its agent broke" if broke and not found["n_turns"] else "what its tests said"


def _print_steps(steps: list[TaskStep]) -> None:
    output.print_table(
        ("step", "turns>", "reward", "error", ""),
        (
            (step["name"], step["n_turns"], _rewards(step), _error(step), _end(step))
            for step in steps
        ),
        whole=("step",),
    )


def _rewards(step: TaskStep) -> list[str]:
    return [f"{name}={value:g}" for name, value in (step["rewards"] or {}).items()]


def _error(step: TaskStep) -> str | None:
    return _told(step["error"], step["message"])


def _end(step: TaskStep) -> str:
    """Say what became of it where a reward does not."""
    if not step["played"]:
        return "not played"
    return f"stopped: below its gate of {_gate(step)}" if step["stopped"] else " "


def _gate(step: TaskStep) -> str:
    gate = step["min_reward"]
    if isinstance(gate, dict):
        return " ".join(f"{name}={value:g}" for name, value in gate.items())
    return output.cell(gate)


def _told(error: str | None, message: str | None) -> str | None:
    """Return an error with what is said of it."""
    return f"{error}: {output.one_line(message)}" if error and message else error


def _fields(found: TrialDetail) -> dict[str, Any]:
    message = output.one_line(found["skip_message"] or "")
    reason = ": ".join(filter(None, (found["skip_reason"], message)))
    rewards = [f"{name}={value:g}" for name, value in found["rewards"].items()]
    known = {
        "trial": found["trial_id"],
        "task": found["task"],
        "world": found["world_id"],
        "state": found["state"] + (f" ({reason})" if reason else ""),
        "reward": found["reward"],
        "verifier": rewards or found["verified"],
        "graded": found["mode"],
        "error": _told(found["error"], found["error_message"]),
        "judge": [f"{name}={value:g}" for name, value in found["scores"].items()],
        "attempts": found["attempts"],
        "turns": found["n_turns"],
        "files": found["files_written"],
        "recovered": provenance.recovered(found["provenance"]),
    }
    odd = ("task", "graded", "error", "recovered", "judge")
    return {name: value for name, value in known.items() if value or name not in odd}
