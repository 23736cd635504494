"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from trialog.cli.exits import BadInput
from trialog.cli.output import Format
from trialog.proto.ids import InvalidIdError, check_run_id, parse_trial_address

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="TRIALOG_URL",
        metavar="URL",
        help="The server's address; default: the stack that `trialog up` runs, "
        "else http://127.0.0.1:8321.",
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How the result is written.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run id, such as r-abcdefghijklmnop.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")]
All = Annotated[bool, typer.Option("--all", help="All of them, page by page.")]


def run_id_of(text: str) -> str:
    """Return a valid run id; raises BadInput."""
    try:
        return check_run_id(text)
    except InvalidIdError as error:
        raise BadInput(f"RUN: {text!r} is no run id: {error}") from None


def labels_of(given: list[str] | None) -> dict[str, str]:
    """Return labels of KEY=VALUE texts; raises BadInput."""
    labels: dict[str, str] = {}
    for one in given or ():
        key, equals, value = one.partition("=")
        if not (key and equals):
            raise BadInput(f"--label: {one!r} is no KEY=VALUE")
        labels[key] = value
    return labels


def trial_address_of(text: str) -> tuple[str, str]:
    """Return run id and trial id of RUN/TRIAL; raises BadInput."""
    try:
        return parse_trial_address(text)
    except InvalidIdError as error:
        raise BadInput(
            f"RUN/TRIAL: {text!r} is no trial, such as r-abcdefghijklmnop/s0-p0-n0: {error}"
        ) from None
