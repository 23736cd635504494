"""The demo's table on a narrow terminal."""

import io

import pytest
from rich.console import Console
from trialog.cli import claims
from trialog.cli.claims import Row
from trialog.cli.claims.row import within
from trialog.cli.commands.demo import _report, print_rows
from trialog.cli.output import Format

ROWS = [
    Row(
        "The judge was called once a trial (its own count)",
        "18 calls, at most 1 a trial",
        "18 calls, at most 1 a trial, 18 recorded",
        ok=True,
    ),
    Row("The run completes", "completed", "failed", ok=False),
]


def drawn(width: int) -> list[str]:
    file = io.StringIO()
    print_rows(ROWS, Console(file=file, width=width, force_terminal=True, color_system=None))
    return [line.rstrip() for line in file.getvalue().splitlines() if line.strip()]


def test_where_texts_wrap_the_verdict_shows_where_a_row_begins():
    _, _, *lines = drawn(80)
    assert len(lines) > len(ROWS)
    assert [line.split()[0] for line in lines if not line.startswith("   ")] == ["ok", "FAILED"]
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    assert {word for row in ROWS for word in row.claim.split()} <= set(words)


def test_only_a_time_that_was_measured_may_be_the_machines_fault():
    slow = within("Quick", 2.0, 2.4, "s", "not measured")
    assert (slow.ok, slow.timed, slow.measured) == (False, True, "2.40 s")
    missing = within("Quick", 2.0, None, "s", "not measured")
    assert (missing.ok, missing.timed, missing.measured) == (False, False, "not measured")
    assert within("Quick", 2.0, 2.0, "s", "").ok


def test_a_busy_machine_is_named_last(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(claims, "figures", lambda _: {})
    monkeypatch.setattr("os.getloadavg", lambda: (9.0, 8.0, 7.0))
    for timed in (True, False):
        rows = [Row("Quick", "at most 2 s", "3 s", ok=False, timed=timed)]
        monkeypatch.setattr(claims, "check", lambda _, rows=rows: rows)
        assert _report(None, None, Format.json) == 1  # pyright: ignore[reportArgumentType]
        last = capsys.readouterr().err.splitlines()[-1]
        assert ("load average is 9.0 8.0 7.0" in last and "try again" in last) == timed
