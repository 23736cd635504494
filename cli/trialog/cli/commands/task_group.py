"""The group of commands about tasks; the modules that have them add themselves to it."""

from __future__ import annotations

from typing import Final

import typer

GROUP: Final = typer.Typer(
    help="Check tasks, and see how they went.", no_args_is_help=True, rich_markup_mode="rich"
)


def register(app: typer.Typer) -> None:
    """Add the group to the application."""
    app.add_typer(GROUP, name="tasks")
