"""What a command writes: results on standard output, everything else on standard error.

Texts that come from a server may hold what an agent or a model wrote, so nothing of them reaches
the terminal as a control sequence or as markup.
"""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 200


class Format(StrEnum):
    """How a result is written."""

    table = "table"
    json = "json"


def print_json(value: Any, *, one_line: bool = False) -> None:
    """Write a value as JSON, in ASCII: it survives any locale, and lone surrogates."""
    print(json.dumps(value, indent=None if one_line else 2), flush=True)


def note(message: str) -> None:
    """Tell the user something on standard error."""
    print(visible(message, keep="\n"), file=sys.stderr, flush=True)


def visible(value: Any, keep: str = "") -> str:
    """Return a value as text in which every control character is written out."""
    text = value if isinstance(value, str) else str(value)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else ascii(char)[1:-1] for char in text
    )


def cell(value: Any) -> str:
    """Return a value for a table: a dash for what is not there."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list() | tuple():
            return " ".join(visible(one) for one in value) or "-"  # pyright: ignore[reportUnknownVariableType]
        case _:
            return visible(value)


def clock_time(recorded: str) -> str:
    """Return a recorded time in the user's time zone, to the second."""
    return f"{datetime.fromisoformat(recorded).astimezone():%Y-%m-%d %H:%M:%S}"


def console(*, stderr: bool = False) -> Console:
    """Return a console; what is piped is not cut at 80 columns."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else _PIPE_WIDTH)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
    """Write rows as a table; a column whose name ends in ``>`` is set to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for column in columns:
        right = column.endswith(">")
        table.add_column(Text(column.rstrip(">")), justify="right" if right else "left")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    console().print(table)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Write ``name  value`` lines."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        print(f"{name:<{width}}  {cell(value)}")
