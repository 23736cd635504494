"""The command that draws the tree of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from trialog.cli import output
from trialog.cli.commands.options import Output, RunId, Url, run_id_of
from trialog.cli.connection import server
from trialog.cli.output import Format

if TYPE_CHECKING:
    from trialog.client.fork_models import Change, Lineage, RubricChanges, TreeRun

_LONGEST = 60
_BRANCHES = ("├─ ", "└─ ", "│  ")
_PLAIN_BRANCHES = ("+- ", "`- ", "|  ")


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command(epilog="Example: trialog lineage r-abcdefghijklmnop")(lineage)


def lineage(run: RunId, url: Url = None, output_format: Output = Format.table) -> None:
    """Draw the tree that a run is in, and say what each fork on the way to it changed."""
    run_id = run_id_of(run)
    with server(url) as client:
        found = client.get_lineage(run_id, limit=1000)
        while (cursor := found["next_cursor"]) is not None:
            page = client.get_lineage(run_id, limit=1000, cursor=cursor)
            found["runs"] += page["runs"]
            found["next_cursor"] = page["next_cursor"]
    if output_format is Format.json:
        output.print_json(found)
        return
    columns = ("run", "state", "rubric", "steps>", "reward>", "executed>", "recovered>")
    output.print_table(
        (*columns, "judge calls>", "USD>", "created"),
        (_row(before, one, run_id) for before, one in drawn(found["runs"])),
        whole=("run", "state"),
        optional=("created", "USD", "recovered", "steps", "executed", "judge calls", "rubric"),
    )
    _print_changes(found)


def drawn(runs: list[TreeRun]) -> Iterator[tuple[str, TreeRun]]:
    """Yield runs as a tree, each with what is drawn before its id; a run comes before its forks,
    and forks of one run in the order in which they are given."""
    fork, last, through = _branches()
    known = {one["run_id"] for one in runs}
    forks: dict[str | None, list[TreeRun]] = {}
    for one in runs:
        parent = one["parent"] if one["parent"] in known else None
        forks.setdefault(parent, []).append(one)
    waiting = [("", "", one) for one in reversed(forks.get(None, []))]
    while waiting:
        before, below, one = waiting.pop()
        yield before, one
        own = forks.get(one["run_id"], [])
        for number, each in reversed(list(enumerate(own, 1))):
            ends = number == len(own)
            under = below + ("   " if ends else through)
            waiting.append((below + (last if ends else fork), under, each))


def _branches() -> tuple[str, str, str]:
    """Return the pieces of a drawing that the terminal can show."""
    try:
        "".join(_BRANCHES).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _PLAIN_BRANCHES
    return _BRANCHES


def _row(before: str, one: TreeRun, run_id: str) -> tuple[object, ...]:
    reward = one["mean_reward"]
    return (
        f"{before}{one['run_id']}{' *' if one['run_id'] == run_id else ''}",
        one["state"],
        one["rubric"] + (", rescored" if one["mode"] == "rescore" else ""),
        f"{one['steps_applied']}/{one['n_steps']}",
        None if reward is None else f"{reward:.3f}",
        sum(one["executed"].values()),
        sum(one["recovered"].values()),
        one["cost"]["judge_calls"],
        f"{one['cost']['usd']:.4f}",
        output.clock_time(one["created_at"]),
    )


def _print_changes(found: Lineage) -> None:
    """Write what each fork on the way from the root to the run changed."""
    chain = found["ancestors"]
    if not chain:
        print(f"{found['run_id']} is no fork")
    modes = {one["run_id"]: one for one in found["runs"]}
    below = [found["run_id"], *(each["run_id"] for each in chain)]
    for ancestor, fork in reversed(list(zip(chain, below, strict=False))):
        how = modes.get(fork)
        mode = f", {how['mode']}" if how and how["mode"] != "recompute" else ""
        kept = f", from step {how['from_step']}" if how and how["from_step"] else ""
        print(f"{fork} forked {ancestor['run_id']} at position {ancestor['position']}{mode}{kept}:")
        lines = changed(ancestor["changes"])
        if how and how["mode"] != ancestor["mode"]:
            lines.append(f"mode: {ancestor['mode']} -> {how['mode']}")
        for line in lines or ["nothing changed"]:
            print(f"  {line}")


def changed(changes: list[Change]) -> list[str]:
    """Return a line for each setting that differs, and for each criterion of a rubric."""
    lines: list[str] = []
    for change in changes:
        before, after = change["from"], change["to"]
        if change["rubric"] is not None:
            before, after = before["name"], after["name"]
        sides = _sides(before, after)
        name = output.visible(change["field"])
        if change["rubric"] is not None and not sides:
            name += f" {output.short(before)}"  # one name: what differs is said below
        lines.append(f"{name}: {sides}" if sides else f"{name} changed")
        if change["rubric"] is not None:
            lines += [f"  {line}" for line in _criteria(change["rubric"])]
    return lines


def _criteria(changes: RubricChanges) -> Iterator[str]:
    scoring = changes["scoring"]
    if scoring is not None:
        yield f"scoring: {scoring['from']} -> {scoring['to']}"
    for one in changes["added"]:
        yield f"criterion {output.visible(one['name'])}: added, weight {one['weight']:g}"
    for one in changes["removed"]:
        yield f"criterion {output.visible(one['name'])}: removed"
    for one in changes["changed"]:
        for field in one["fields"]:
            sides = _sides(field["from"], field["to"]) or "changed"
            yield f"criterion {output.visible(one['name'])}: {field['field']} {sides}"
    if changes["reordered"]:
        yield "criteria stand in another order"


def _sides(before: Any, after: Any) -> str:
    """Return what was and what is, nothing where that is long or would read the same."""
    sides = output.short(before), output.short(after)
    if sides[0] == sides[1] or max(map(len, sides)) > _LONGEST:
        return ""
    return " -> ".join(sides)
