"""The demo's table on a narrow terminal."""

import io

from rich.console import Console
from trialog.cli.claims import Row
from trialog.cli.commands.demo import print_rows

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
