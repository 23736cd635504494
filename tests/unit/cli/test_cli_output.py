"""Tables: what a narrow terminal leaves out, and what is never cut."""

import io

import pytest
from rich.console import Console
from trialog.cli import output

RUN = "r-ykhc76d6abcdefgh"
COLUMNS = ("run", "state", "steps>", "reward>", "rubric", "created", "labels")
ROW = (RUN, "completed", "3/3", 1.917, "v2-efficiency", "2026-11-30 12:00:00", ["team=blue"])


def drawn(width: int, *, terminal: bool = True) -> list[str]:
    to = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    output.print_table(
        COLUMNS,
        [ROW],
        whole=("run", "created"),
        optional=("labels", "rubric"),
        to=to,
    )
    assert isinstance(to.file, io.StringIO)
    return [line.rstrip() for line in to.file.getvalue().splitlines() if line.strip()]


def test_a_wide_terminal_shows_every_column():
    heading, _, row = drawn(120)
    assert heading.split() == ["run", "state", "steps", "reward", "rubric", "created", "labels"]
    assert row.endswith("team=blue")


def test_80_columns_leave_out_labels_and_keep_ids_and_dates():
    heading, _, row = drawn(80)
    assert "labels" not in heading
    assert RUN in row
    assert "2026-11-30 12:00:00" in row
    assert len(row) <= 80


def test_what_does_not_fit_at_all_is_still_not_cut():
    lines = drawn(30)
    assert any(RUN in line for line in lines)
    assert any("2026-11-30 12:00:00" in line for line in lines)
    assert not any("…" in line for line in lines)


def test_what_is_piped_keeps_every_column_on_one_line():
    assert len(drawn(30, terminal=False)) == 3


def test_an_empty_list_says_so(capsys: pytest.CaptureFixture[str]):
    output.print_table(COLUMNS, [])
    assert capsys.readouterr().out == "none\n"
