"""Commands that show what a run has made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from trialog.cli import output, provenance
from trialog.cli.commands.options import (
    All,
    Limit,
    Output,
    RunId,
    Url,
    run_id_of,
    trial_address_of,
)
from trialog.cli.connection import WATCH_PATIENCE_S, server
from trialog.cli.output import Format
from trialog.cli.turns import are_of_a_task, print_turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trialog.client import TrialogClient
    from trialog.client.models import Bill, Cost, Counts, Event, Run, RunBudget, Trial

# The shapes that scripts rely on: what -o json writes, key by key.
RUN_KEYS = (
    "run_id",
    "state",
    "failure",
    "pause_reason",
    "parent",
    "parent_position",
    "mode",
    "from_step",
    "rubric",
    "created_at",
    "labels",
    "steps",
    "counts",
    "cost",
    "budget",
)
STEP_KEYS = (
    "step",
    "mean_reward",
    "mean_turns",
    "n_trials",
    "n_skipped",
    "weights_version",
    "weights_digest",
    "actor",
    "state",
    "trained",
    "provenance",
)
TRIAL_KEYS = (
    "trial_id",
    "step",
    "world_id",
    "task",
    "state",
    "attempts",
    "n_turns",
    "turns",
    "answer",
    "files_written",
    "found_doc",
    "verified",
    "verifier_reward",
    "rewards",
    "mode",
    "error",
    "judge_score",
    "reward",
    "provenance",
)
COUNTS_KEYS = ("executed", "recovered", "retried", "skipped")
WEIGHTS_KEYS = ("version", "digest", "doc_prior")


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command(epilog="Example: trialog show r-abcdefghijklmnop -o json")(show)
    app.command(epilog="Example: trialog trials r-abcdefghijklmnop --step 1 --state judged")(trials)
    app.command(epilog="Example: trialog trajectory r-abcdefghijklmnop/s0-p1-n0")(trajectory)
    app.command(epilog="Example: trialog events r-abcdefghijklmnop --follow -o json")(events)
    app.command(epilog="Example: trialog weights r-abcdefghijklmnop --version 2 -o json")(weights)


def _only(keys: tuple[str, ...], found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in keys}


def show(
    run: RunId,
    full: Annotated[bool, typer.Option("--full", help="With -o json: also the settings.")] = False,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """Show a run: its steps, what was executed, recovered and retried, and the cost."""
    with server(url) as client:
        found = client.get_run(run_id_of(run))
        while (cursor := found["steps_cursor"]) is not None:
            page = client.list_steps(found["run_id"], limit=1000, cursor=cursor)
            found["steps"] += page["steps"]
            found["steps_cursor"] = page["next_cursor"]
        seen = _seen_up_to(client, found)
    if output_format is Format.table:
        _print_run(found, seen)
        return
    shown = dict(found) | {"parent_position": seen}
    if not full:
        steps = [_only(STEP_KEYS, step) for step in found["steps"]]
        counts = _only(COUNTS_KEYS, found["counts"])
        if "lost" in found["counts"]:
            counts["lost"] = found["counts"]["lost"]
        shown = _only(RUN_KEYS, shown) | {"steps": steps, "counts": counts}
    output.print_json(shown)


def _seen_up_to(client: TrialogClient, run: Run) -> int | None:
    """Return the position up to which a fork sees its parent; None for what is no fork."""
    if run["parent"] is None:
        return None
    return client.get_lineage(run["run_id"], limit=1)["ancestors"][0]["position"]


def _print_run(run: Run, seen: int | None) -> None:
    reason = run["failure"] or run["pause_reason"]
    fields: dict[str, Any] = {
        "run": run["run_id"],
        "state": run["state"] + (f": {output.one_line(reason)}" if reason else ""),
        **_asked_fields(run["spec"]),
        **_fork_fields(run, seen),
        "rubric": run["rubric"],
        "created": output.clock_time(run["created_at"]),
        "labels": [f"{key}={value}" for key, value in run["labels"].items()],
    }
    output.print_fields(fields)
    output.print_table(
        ("step>", "trials>", "skipped>", "reward>", "turns>", "weights>", "digest", "was"),
        (
            (
                step["step"],
                step["n_trials"],
                step["n_skipped"],
                step["mean_reward"],
                step["mean_turns"],
                step["weights_version"],
                (step["weights_digest"] or "")[:12],
                provenance.step_was(step),
            )
            for step in run["steps"]
        ),
        empty="steps    none",
    )
    _print_counts(run["counts"])
    _print_cost(run["cost"])
    _print_budget(run["budget"])


def _asked_fields(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return who plays a run of tasks, where, and which; of the reference run it is known."""
    tasks: Mapping[str, Any] | None = spec.get("tasks")
    if tasks is None:
        return {}
    found = {"agent": spec.get("agent"), "provider": spec.get("provider")}
    archive = tasks.get("archive")
    place = tasks.get("path") or (f"archive {archive}" if archive else "")
    count = output.cell(tasks.get("count"))
    return found | {"tasks": f"{count} ({output.short(place)})" if place else count}


def _fork_fields(run: Run, seen: int | None) -> dict[str, Any]:
    """Return what is to be said of a fork, and of a run that is none."""
    if run["parent"] is None:
        return {"parent": None}
    fields: dict[str, Any] = {"parent": f"{run['parent']} as it was at position {seen}"}
    if run["mode"] != "recompute":
        fields["mode"] = run["mode"]
    if run["from_step"]:
        fields["from step"] = run["from_step"]
    return fields


def _print_budget(budget: RunBudget) -> None:
    limits, spent = budget["limits"], budget["spent"]
    limited = [
        f"{spent[name]:.10g} of {limit:.10g} {name.replace('_', ' ')}"
        for name in ("judge_calls", "tokens", "usd")
        if (limit := limits[name]) is not None
    ]
    if limited:
        print(f"budget: {', '.join(limited)} spent")


def _print_cost(cost: Cost) -> None:
    print(f"judge: {_bill(cost)}")
    for name in ("saved_by_memo", "saved_by_recovery"):
        if cost[name]["judge_calls"]:
            print(f"{name.replace('_', ' ')}: {_bill(cost[name])}")
    if cost["calls_unrecorded"]:
        print(
            f"without a reply on the log: {cost['calls_unrecorded']} of {cost['calls_started']} "
            "calls started (in flight, or not known to have been made)"
        )


def _bill(bill: Bill) -> str:
    return (
        f"{bill['judge_calls']} calls, {bill['prompt_tokens']} tokens sent, "
        f"{bill['completion_tokens']} received, {bill['usd']:.6f} USD"
    )


def _print_counts(counts: Counts) -> None:
    names = ["executed", "recovered", "retried"]
    parts = cast("dict[str, dict[str, int]]", counts)
    if any(parts.get("lost", {}).values()):
        names.append("lost")  # attempts whose worker vanished: rare, and no retry
    output.print_table(
        ("action", *(f"{name}>" for name in names)),
        ((kind, *(parts[name].get(kind) for name in names)) for kind in parts["executed"]),
    )


def trials(
    run: RunId,
    all_: All = False,
    step: Annotated[int | None, typer.Option("--step", min=0, help="Only this step.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", help="Only this state, such as judged or skipped.")
    ] = None,
    limit: Limit = 50,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """List a run's trials in order of their ids."""
    run_id, found, cursor = run_id_of(run), list["Trial"](), None
    with server(url) as client:
        while True:
            page = client.list_trials(
                run_id, step=step, state=state, limit=None if all_ else limit, cursor=cursor
            )
            found += page["trials"]
            cursor = page["next_cursor"]
            if cursor is None or not all_:
                break
    if output_format is Format.json:
        output.print_json([_only(TRIAL_KEYS, trial) for trial in found])
    else:
        _print_trials(found)
    if cursor is not None:
        output.note("there are more: see them with --all")


def _print_trials(found: list[Trial]) -> None:
    """Trials of tasks have what those of the reference world have not, and the other way round."""
    columns = ("trial", "world", "state", "attempts>", "turns>", "verified", "score>", "reward>")
    columns, row, odd = (*columns, "files"), _trial_row, ("files",)
    if any(trial["task"] is not None for trial in found):
        columns = ("trial", "task", "state", "attempts>", "turns>", "graded", "reward>", "rewards")
        columns, row, odd = (*columns, "error"), _task_row, ("rewards", "graded", "turns")
    output.print_table(
        (*columns, "recovered", "from"),
        ((*row(trial), *_origin(trial)) for trial in found),
        whole=("trial", "task", "world", "state", "from"),
        optional=(*odd[:1], "from", "recovered", *odd[1:], "world"),
    )


def _task_row(trial: Trial) -> tuple[object, ...]:
    rewards = trial["rewards"]
    return (
        trial["trial_id"],
        trial["task"],
        trial["state"],
        trial["attempts"],
        trial["n_turns"],
        trial["mode"],
        trial["reward"],
        [f"{name}={value:g}" for name, value in rewards.items()] if len(rewards) > 1 else None,
        trial["error"],
    )


def _origin(trial: Trial) -> tuple[object, ...]:
    return provenance.recovered(trial["provenance"]), provenance.sources(trial["provenance"])


def _trial_row(trial: Trial) -> tuple[object, ...]:
    return (
        trial["trial_id"],
        trial["world_id"],
        trial["state"],
        trial["attempts"],
        trial["n_turns"],
        trial["verified"],
        trial["judge_score"],
        trial["reward"],
        trial["files_written"],
    )


def trajectory(
    trial: Annotated[str, typer.Argument(metavar="RUN/TRIAL", help="A trial of a run.")],
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """Show what a trial's agent did, turn by turn."""
    run_id, trial_id = trial_address_of(trial)
    with server(url) as client:
        found = client.get_trajectory(run_id, trial_id)
        is_of_a_task = are_of_a_task(found.get("turns") or [])
        task = client.get_trial(run_id, trial_id)["task"] if is_of_a_task else None
    if output_format is Format.json:
        output.print_json(found)
        return
    about = {"trial": f"{run_id}/{trial_id}"} | ({"task": task} if task else {})
    output.print_fields(
        about | {key: value for key, value in found.items() if _is_shown(key, value)}
    )
    turns: list[Mapping[str, Any]] = found.get("turns") or []
    if is_of_a_task:
        print_turns(turns)
        return
    columns = list(dict.fromkeys(key for turn in turns for key in turn))
    output.print_table(
        ("turn>", *columns),
        ((number, *(turn.get(key) for key in columns)) for number, turn in enumerate(turns)),
    )


def _is_shown(key: str, value: Any) -> bool:
    """Say whether a value fits one line; the rest of a trajectory is for -o json. Of a task there
    is no answer, and mostly no error."""
    if value in (None, "") and key in ("answer", "error"):
        return False
    if isinstance(value, list):
        return all(isinstance(one, str | int | float) for one in cast(list[Any], value))
    return not isinstance(value, dict)


def events(
    run: RunId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")
    ] = False,
    after: Annotated[int, typer.Option("--after", min=0, help="Only after this position.")] = 0,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """Write a run's events in order, one a line; with -o json one JSON object a line.

    Lines show the first 12 digits of a digest; JSON has all of them.
    """
    run_id = run_id_of(run)
    with server(url, patience_s=WATCH_PATIENCE_S) if follow else server(url) as client:
        source = client.watch(run_id, after) if follow else client.iter_events(run_id, after)
        for event in source:
            if output_format is Format.json:
                output.print_json(event, one_line=True)
            else:
                print(_event_line(event), flush=follow)


def _event_line(event: Event) -> str:
    facts = " ".join(
        f"{key}={output.short(value)}" for key, value in event["data"].items() if key != "spec"
    )
    at = event["recorded_at"]
    return f"{event['position']:>8}  {output.visible(at)}  {event['type']:<20}  {facts}"


def weights(
    run: RunId,
    version: Annotated[
        int | None, typer.Option("--version", min=0, help="After so many steps; default: latest.")
    ] = None,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """Show a version of a run's weights: for each world, a number for each of 8 documents."""
    with server(url) as client:
        found = client.get_weights(run_id_of(run), "latest" if version is None else version)
    if output_format is Format.json:
        output.print_json(_only(WEIGHTS_KEYS, found))
        return
    output.print_fields({"version": found["version"], "digest": found["digest"]})
    output.print_table(
        ("world", *(f"{number}>" for number in range(8))),
        ((world, *prior) for world, prior in found["doc_prior"].items()),
        empty="none: nothing is learnt on tasks",
    )
