"""The group of commands about tasks; the modules that have them add themselves to it."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> typer.Typer:
    """Add the group to the application and return it."""
    group = typer.Typer(
        help="Check tasks, and see how they went.", no_args_is_help=True, rich_markup_mode="rich"
    )
    app.add_typer(group, name="tasks")
    return group
