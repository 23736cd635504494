"""Rows for training, written as JSON lines or as Parquet, a page at a time in memory."""
# ruff: noqa: PLC0415 - Parquet needs what is not installed with the command

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from trialog.cli.exits import BadInput
from trialog.cli.export.progress import Progress

if TYPE_CHECKING:
    from trialog.client import TrialogClient
    from trialog.client.export_models import Row

STDOUT = "-"


class Writer(Protocol):
    """Takes rows, page by page."""

    def write(self, rows: list[Row]) -> None:
        """Write a page of rows."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


@dataclass(slots=True)
class Written:
    """How many rows were written, and how many of them have no token ids, or several sequences."""

    rows: int = 0
    without_tokens: int = 0
    in_segments: int = 0

    def add(self, row: Row) -> None:
        """Take note of one more row."""
        self.rows += 1
        if row["segments"] is not None:
            self.in_segments += 1
        elif row["completion_token_ids"] is None:
            self.without_tokens += 1


class JsonLines:
    """One row a line, in ASCII: it survives any locale."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, rows: list[Row]) -> None:
        """Write a page of rows."""
        for row in rows:
            self._file.write(json.dumps(row) + "\n")

    def close(self) -> None:
        """Write what is left."""
        self._file.flush()


def export_rows(
    client: TrialogClient,
    run_id: str,
    writer: Writer,
    *,
    step: int | None = None,
    unscored: bool = False,
    total: int | None = None,
) -> Written:
    """Write the rows of a run; the writer is closed by whoever opened it."""
    written, progress = Written(), Progress("rows written", total)
    cursor = None
    while True:
        page = client.list_rows(run_id, step=step, unscored=unscored, cursor=cursor)
        for row in page["rows"]:
            written.add(row)
        writer.write(page["rows"])
        progress.add(len(page["rows"]))
        cursor = page["next_cursor"]
        if cursor is None:
            return written


@contextlib.contextmanager
def new_file(path: Path) -> Generator[Path]:
    """Give a path beside a file that is to be; the file appears whole or not at all. Raises
    BadInput when it is there already."""
    if path.exists() or path.is_symlink():
        raise BadInput(f"-o {path}: is there already; nothing was written")
    aside = path.with_name(f".{path.name}.part")
    try:
        yield aside
        aside.rename(path)
    except OSError as error:
        raise BadInput(f"-o {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # it is gone, or never was
            aside.unlink()


@contextlib.contextmanager
def json_lines(path: str) -> Generator[Writer]:
    """Give a writer of JSON lines to a new file, or to standard output."""
    if path == STDOUT:
        yield JsonLines(sys.stdout)
        sys.stdout.flush()  # before it is told how many there were
        return
    with new_file(Path(path)) as aside, aside.open("w", encoding="ascii") as file:
        yield JsonLines(file)


@contextlib.contextmanager
def parquet(path: str) -> Generator[Writer]:
    """Give a writer of Parquet to a new file. Raises BadInput where pyarrow is missing."""
    try:
        from trialog.cli.export.parquet import ParquetRows
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise BadInput(
            "--format parquet needs pyarrow: pip install './cli[parquet]' in a checkout, "
            "or take jsonl"
        ) from None
    with new_file(Path(path)) as aside:
        writer: Any = ParquetRows(aside)
        try:
            yield writer
        finally:
            writer.close()
