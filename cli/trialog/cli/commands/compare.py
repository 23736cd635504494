"""The command that puts two runs side by side."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trialog.cli import output, provenance
from trialog.cli.commands.options import All, Limit, Output, Url, run_id_of
from trialog.cli.connection import server
from trialog.cli.exits import BadInput
from trialog.cli.output import Format

if TYPE_CHECKING:
    from trialog.client import TrialogClient
    from trialog.client.fork_models import (
        Comparison,
        RunSide,
        StepCompared,
        TrialCompared,
        TrialSide,
    )

_EXECUTED = ("generate", "judge_call", "judge", "train_step")

RunA = Annotated[str, typer.Argument(metavar="A", help="A run id.")]
RunB = Annotated[str, typer.Argument(metavar="B", help="The run that A is compared with.")]


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command(epilog="Example: trialog compare r-abcdefghijklmnop r-ponmlkjihgfedcba --step 0")(
        compare
    )


def compare(
    a: RunA,
    b: RunB,
    step: Annotated[int | None, typer.Option("--step", min=0, help="Only this step.")] = None,
    all_: All = False,
    limit: Limit = 50,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """Compare two runs: rewards, scores, and what each executed. Deltas are B minus A.

    Means are over the trials that are scored in both; what has no verdict has no delta.
    """
    run_a, run_b = run_id_of(a), run_id_of(b)
    with server(url) as client:
        found = client.compare(run_a, run_b, step=step, limit=1000 if all_ else limit)
        _check_step(found, step)
        if all_:
            _read_on(client, found, step)
        rubrics = _rubrics(client, found)
    if output_format is Format.json:
        output.print_json(found)
    else:
        _print_runs(found, rubrics, step)
        _print_steps(found)
        _print_trials(found["trials"])
    if found["next_cursor"] is not None:
        output.note("there are more trials: see them with --all, or a step's with --step")


def _check_step(found: Comparison, step: int | None) -> None:
    """Raise BadInput for a step that neither run has begun: there is nothing to be shown of it."""
    if step is not None and not found["steps"] and not found["trials"]:
        a, b = found["a"], found["b"]
        have = f"{a['run_id']} has {a['n_steps']} steps, {b['run_id']} {b['n_steps']}"
        raise BadInput(f"--step: neither run has begun step {step}; they count from 0 ({have})")


def _rubrics(client: TrialogClient, found: Comparison) -> tuple[str, str]:
    """Return the names of both runs' rubrics; of two that differ under one name, with digests."""
    a, b = found["a"], found["b"]
    if a["rubric"] == b["rubric"] and a["run_id"] != b["run_id"]:
        digests = [_digest(client.get_run(side["run_id"])["spec"]) for side in (a, b)]
        if digests[0] != digests[1]:
            return f"{a['rubric']} {digests[0]}", f"{b['rubric']} {digests[1]}"
    return a["rubric"], b["rubric"]


def _digest(spec: dict[str, Any]) -> str:
    """Return the first digits of the digest of a recorded spec's rubric."""
    from trialog.proto import runspec

    return runspec.load(spec).resolved_rubric.digest[:8]


def _read_on(client: TrialogClient, found: Comparison, step: int | None) -> None:
    """Add the trials of the pages that follow."""
    a, b = found["a"]["run_id"], found["b"]["run_id"]
    while (cursor := found["next_cursor"]) is not None:
        page = client.compare(a, b, step=step, limit=1000, cursor=cursor)
        found["trials"] += page["trials"]
        found["next_cursor"] = page["next_cursor"]


def _print_runs(found: Comparison, rubrics: tuple[str, str], step: int | None) -> None:
    whole = "" if step is None else ", whole run"
    a, b, totals = found["a"], found["b"], found["totals"]
    rows: list[tuple[object, ...]] = [
        ("run", a["run_id"], b["run_id"], None),
        ("state", a["state"], b["state"], None),
        ("rubric", *rubrics, None),
    ]
    if totals is not None:
        means, n, scored = totals["mean_reward"], totals["n_trials"], totals["n_scored"]
        rows.append(
            (
                f"mean reward over {totals['n']}",
                _reward(means["a"]),
                _reward(means["b"]),
                _delta(totals["delta"]),
            )
        )
        rows.append(
            (
                "trials scored",
                f"{scored['a']} of {n['a']}",
                f"{scored['b']} of {n['b']}",
                _more(scored["a"], scored["b"]),
            )
        )
    rows += [_executed(kind + " executed" + whole, kind, a, b) for kind in _EXECUTED]
    usd = a["cost"]["usd"], b["cost"]["usd"]
    # Costs are counted in millionths: with all digits the difference adds up.
    rows.append((f"USD{whole}", f"{usd[0]:.6f}", f"{usd[1]:.6f}", f"{usd[1] - usd[0]:+.6f}"))
    output.print_table(("", "a>", "b>", "delta>"), rows, whole=("a", "b"))
    if not found["same_tree"]:
        print("The runs are of different trees: neither has recovered anything from the other.")


def _executed(name: str, kind: str, a: RunSide, b: RunSide) -> tuple[object, ...]:
    did = a["counts"]["executed"].get(kind, 0), b["counts"]["executed"].get(kind, 0)
    return (name, *did, _more(*did))


def _more(a: int, b: int) -> str | None:
    return f"{b - a:+d}" if a != b else None


def _print_steps(found: Comparison) -> None:
    output.print_table(
        ("step>", "scored in both>", "a>", "b>", "delta>", "a was", "b was"),
        map(_step_row, found["steps"]),
        whole=("a was", "b was"),
        empty="steps    none",
    )
    if found["steps_left_out"]:
        output.note(f"{found['steps_left_out']} more steps: see one with --step")


def _step_row(step: StepCompared) -> tuple[object, ...]:
    return (
        step["step"],
        step["n"],
        _reward(step["mean_reward"]["a"]),
        _reward(step["mean_reward"]["b"]),
        _delta(step["delta"]),
        *(provenance.step_was(side) if side else None for side in (step["a"], step["b"])),
    )


def _print_trials(trials: list[TrialCompared]) -> None:
    criteria = list(
        dict.fromkeys(
            name for trial in trials if trial["delta"] for name in trial["delta"]["scores"]
        )
    )
    scores = [f"d {name}>" for name in criteria]
    columns = ("trial", "a>", "b>", "delta>", "a did", "b did", "same try", *scores)
    output.print_table(
        (*columns, "a from", "b from"),
        (_trial_row(trial, criteria) for trial in trials),
        whole=("trial", "a from", "b from"),
        optional=("a from", "b from", *(name.rstrip(">") for name in reversed(scores)), "same try"),
        empty="trials   none",
    )
    if trials:
        print(provenance.LEGEND)


def _trial_row(trial: TrialCompared, criteria: list[str]) -> tuple[object, ...]:
    a, b, delta = trial["a"], trial["b"], trial["delta"]
    scores = delta["scores"] if delta else {}
    return (
        trial["trial_id"],
        _verdict(a),
        _verdict(b),
        _delta(delta["reward"]) if delta else None,
        _did(a),
        _did(b),
        trial["same_trajectory"],
        *(_delta(scores.get(name)) for name in criteria),
        _from(a),
        _from(b),
    )


def _verdict(side: TrialSide | None) -> str | None:
    """Return the reward; of what has none, why."""
    if side is None:
        return None
    return side["state"] if side["reward"] is None else _reward(side["reward"])


def _did(side: TrialSide | None) -> str | None:
    return None if side is None else provenance.letters(side["provenance"])


def _from(side: TrialSide | None) -> Any:
    return None if side is None else provenance.sources(side["provenance"])


def _reward(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def _delta(value: float | None) -> str | None:
    return None if value is None else f"{value:+.3f}"
