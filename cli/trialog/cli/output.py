"""What a command writes: results on standard output, everything else on standard error.

Texts that come from a server may hold what an agent or a model wrote, so nothing of them reaches
the terminal as a control sequence or as markup.
"""
# ruff: noqa: PLC0415 - a quick start: a command imports what it needs when it runs

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_PIPE_WIDTH = 200
_WIDEST = 100_000
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


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


def flush() -> bool:
    """Write out what is buffered; False when what reads it has gone, as `head` does.

    Then the stream leads nowhere from here on: Python flushes it again when it ends.
    """
    whole = True
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except BrokenPipeError:
            whole = False
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return whole


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


def one_line(text: str) -> str:
    """Return a message for one line: what a program said has line ends of its own."""
    return " ".join(line for line in map(str.strip, text.splitlines()) if line)


def short(value: Any) -> str:
    """Return a value for one line of text: digests are cut to 12 digits."""
    return _DIGEST.sub(r"\1", cell(one_line(value) if isinstance(value, str) else value))


def clock_time(recorded: str) -> str:
    """Return a recorded time in the user's time zone, to the second."""
    return f"{datetime.fromisoformat(recorded).astimezone():%Y-%m-%d %H:%M:%S}"


def console(*, stderr: bool = False) -> Console:
    """Return a console; what is piped is not cut at 80 columns."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else _PIPE_WIDTH)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    title: str = "",
    *,
    whole: Collection[str] = (),
    optional: Sequence[str] = (),
    empty: str = "none",
    to: Console | None = None,
) -> None:
    """Write rows as a table; a column whose name ends in ``>`` is set to the right.

    Columns named in ``whole`` are neither cut nor wrapped: ids, to be copied. Those in
    ``optional`` are left out on a terminal that is too narrow, the first named first. What is
    piped keeps every column, and each row on one line. Without rows, ``empty`` is written.
    """
    from rich.measure import Measurement

    given = [[cell(value) for value in row] for row in rows]
    if not given:
        print(empty)
        return
    to = to or console()
    left_out: list[str] = []
    while True:
        kept = [n for n, column in enumerate(columns) if column.rstrip(">") not in left_out]
        table = _table([columns[n] for n in kept], [[row[n] for n in kept] for row in given], whole)
        table.title = title or None
        wide = to.options.update(width=_WIDEST)
        wanted = Measurement.get(to, wide, table).maximum
        if wanted <= to.width or not to.is_terminal or len(left_out) == len(optional):
            break
        left_out.append(optional[len(left_out)])
    if not to.is_terminal:
        to.width = max(to.width, wanted)
    to.print(table, crop=False)


def _table(columns: list[str], rows: list[list[str]], whole: Collection[str]) -> Table:
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for n, column in enumerate(columns):
        name = column.rstrip(">")
        # Without a least width even a column that does not wrap is cut when space is short.
        least = max(cell_len(row[n]) for row in rows) if name in whole else None
        table.add_column(
            _unstyled(name),
            justify="left" if name == column else "right",
            no_wrap=name in whole,
            overflow="ignore" if name in whole else "fold",
            min_width=least,
        )
    for row in rows:
        table.add_row(*map(_unstyled, row))
    return table


def _unstyled(text: str) -> Text:
    from rich.text import Text

    return Text(text)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Write ``name  value`` lines."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        print(f"{name:<{width}}  {cell(value)}")
