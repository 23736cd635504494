"""Commands about rubrics: what judges score by."""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trialog.cli import output
from trialog.cli.commands.options import All, Limit, Output, Url
from trialog.cli.connection import server
from trialog.cli.exits import BadInput
from trialog.cli.output import Format

if TYPE_CHECKING:
    from trialog.client import TrialogClient
    from trialog.client.rubric_models import (
        Criterion,
        FieldChange,
        RubricDiff,
        RubricLine,
        RubricVersion,
    )
    from trialog.proto.rubric import Reference

_PROMPT_SHOWN = 70

Named = Annotated[
    str,
    typer.Argument(metavar="NAME[@VERSION]", help="A rubric, such as careful or careful@2."),
]


def register(app: typer.Typer) -> None:
    """Add the group of commands to the application."""
    group = typer.Typer(rich_markup_mode="rich")
    group.callback(invoke_without_command=True, epilog="Example: trialog rubrics -o json")(rubrics)
    group.command(epilog="Example: trialog rubrics show v1")(show)
    group.command(epilog="Example: trialog rubrics put examples/rubrics/careful.yaml")(put)
    group.command(epilog="Example: trialog rubrics diff careful@1 careful@2")(diff)
    app.add_typer(group, name="rubrics")


def rubrics(
    context: typer.Context,
    limit: Limit = 50,
    all_: All = False,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """List rubrics; a command after it shows one, puts one, or compares two."""
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    found: list[RubricLine] = []
    cursor = None
    with server(url) as client:
        while True:
            page = client.list_rubrics(limit=None if all_ else limit, cursor=cursor)
            found += page["rubrics"]
            cursor = page["next_cursor"]
            if cursor is None or not all_:
                break
    if output_format is Format.json:
        output.print_json(found)
    else:
        output.print_table(
            ("rubric", "latest>", "scoring", "criteria>", "created"),
            map(_line, found),
            whole=("rubric",),
            optional=("created",),
        )
    if cursor is not None:
        output.note("there are more: see them with --all")


def _refuse_options(context: typer.Context) -> None:
    """Refuse options that stand before the command: it would never hear of them."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = name.removesuffix("_").replace("_format", "")
            raise BadInput(f"--{option}: goes after {context.invoked_subcommand}")


def _line(one: RubricLine) -> tuple[object, ...]:
    return (
        one["name"],
        one["version"],
        one["scoring"],
        one["n_criteria"],
        _created(one["built_in"], one["created_at"]),
    )


def _created(built_in: bool, at: str | None) -> str | None:
    if built_in or at is None:
        return "built in" if built_in else None
    return output.clock_time(at)


def show(rubric: Named, url: Url = None, output_format: Output = Format.table) -> None:
    """Show a version of a rubric; without a version the latest, and which others there are."""
    wanted = _reference("NAME[@VERSION]", rubric)
    versions: list[Any] = []
    with server(url) as client:
        if wanted.version is not None:
            found = client.get_rubric_version(wanted.name, wanted.version)
        else:
            found, versions = _with_versions(client, wanted.name)
    if output_format is Format.json:
        output.print_json(found if wanted.version else dict(found) | {"versions": versions})
        return
    _print_rubric(found)
    if len(versions) > 1:
        output.print_table(
            ("version>", "created", "digest"),
            (
                (one["version"], _created(found["built_in"], one["created_at"]), one["digest"])
                for one in versions
            ),
        )


def _with_versions(client: TrialogClient, name: str) -> tuple[RubricVersion, list[Any]]:
    """Return a rubric's latest version, and the lines of all of them, newest first."""
    page = client.get_rubric(name, limit=1000)
    latest, versions, cursor = page["latest"], page["versions"], page["next_cursor"]
    while cursor is not None:
        page = client.get_rubric(name, limit=1000, cursor=cursor)
        versions += page["versions"]
        cursor = page["next_cursor"]
    return latest, versions


def _print_rubric(found: RubricVersion) -> None:
    rubric = found["rubric"]
    output.print_fields(
        {
            "rubric": f"{found['name']}@{found['version']}",
            "scoring": rubric["scoring"],
            "created": _created(found["built_in"], found["created_at"]),
            "digest": found["digest"],
        }
    )
    output.print_table(
        ("criterion", "weight>", "scale", "asked for"),
        (
            (one["name"], one["weight"], _scale(one["scale"]), _asked_for(one))
            for one in rubric["criteria"]
        ),
        whole=("criterion",),
    )


def _scale(scale: list[float]) -> str:
    return " to ".join(f"{end:g}" for end in scale)


def _asked_for(one: Criterion) -> str:
    if one["check"] is not None:
        return f"check: {one['check']}"
    words = " ".join((one["prompt"] or "by its name").split())
    return words if len(words) <= _PROMPT_SHOWN else f"{words[: _PROMPT_SHOWN - 3]}..."


def put(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - reads stdin.")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Instead of the file's name.")
    ] = None,
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """Keep a file's rubric: new content is the next version, the same content the same one."""
    from trialog.cli.rubricfile import load_rubric_file

    rubric = load_rubric_file(file, name)
    with server(url) as client:
        kept = client.put_rubric(rubric["name"], rubric)
    if output_format is Format.json:
        about = ("name", "version", "digest", "added", "latest")
        output.print_json({key: kept[key] for key in about}, one_line=True)
        return
    what = "new" if kept["added"] else "there already"
    if kept["latest"] != kept["version"]:
        what += f"; the latest is {kept['name']}@{kept['latest']}"
    print(f"{kept['name']}@{kept['version']} ({what})")


def diff(
    one: Annotated[str, typer.Argument(metavar="A", help="NAME or NAME@VERSION.")],
    other: Annotated[str, typer.Argument(metavar="B", help="NAME or NAME@VERSION.")],
    url: Url = None,
    output_format: Output = Format.table,
) -> None:
    """Say what B has other than A: criteria added, removed and changed, and how they are scored."""
    before, after = _reference("A", one), _reference("B", other)
    with server(url) as client:
        found = client.diff_rubrics(before.name, from_=before.version, to=str(after))
    if output_format is Format.json:
        output.print_json(found)
        return
    sides = [f"{side['name']}@{side['version']}" for side in (found["from"], found["to"])]
    output.print_table(
        ("criterion", "what", *sides), _differences(found), empty="nothing is different"
    )
    for line in _texts(found, sides):
        print(line)


def _differences(found: RubricDiff) -> Iterator[tuple[object, ...]]:
    if found["scoring"] is not None:
        yield None, "scoring", found["scoring"]["from"], found["scoring"]["to"]
    for one in found["changed"]:
        for change in one["fields"]:
            sides = (change["from"], change["to"])
            shown = map(_scale, sides) if change["field"] == "scale" else sides
            if _is_long(change):
                shown = "see below", "see below"
            yield one["name"], change["field"], *shown
    for one in found["removed"]:
        yield one["name"], "removed", _asked_for(one), None
    for one in found["added"]:
        yield one["name"], "added", None, _asked_for(one)
    if found["reordered"]:
        yield None, "order", None, "another"


def _is_long(change: FieldChange) -> bool:
    """Whether a side is a text that does not fit a table."""
    return any(
        isinstance(side, str) and ("\n" in side or len(side) > _PROMPT_SHOWN)
        for side in (change["from"], change["to"])
    )


def _texts(found: RubricDiff, names: list[str]) -> Iterator[str]:
    """Yield the lines of a unified diff for each long text that differs."""
    for one in found["changed"]:
        for change in filter(_is_long, one["fields"]):
            before, after = (
                [output.visible(line) for line in (side or "").split("\n")]
                for side in (change["from"], change["to"])
            )
            yield f"{output.visible(one['name'])}, {output.visible(change['field'])}:"
            yield from difflib.unified_diff(before, after, names[0], names[1], lineterm="")


def _reference(argument: str, text: str) -> Reference:
    from trialog.proto.rubric import parse_reference

    try:
        return parse_reference(text)
    except ValueError as error:
        raise BadInput(f"{argument}: {error}") from None
