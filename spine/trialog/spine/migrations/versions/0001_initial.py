"""The log, its head, work, blobs, read models, and the functions that write them."""

from __future__ import annotations

from operator import methodcaller
from pathlib import Path
from typing import Any

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create everything in the order of the files' numbers."""
    for file in sorted((Path(__file__).parent / "v0001").glob("*.sql")):
        # A script of many statements cannot be prepared: asyncpg's own execute sends it plain.
        connection: Any = op.get_bind().connection.dbapi_connection
        connection.run_async(methodcaller("execute", file.read_text()))


def downgrade() -> None:
    """Refuse: facts that were paid for are not dropped by a migration."""
    raise RuntimeError("the first migration is not undone: drop the database instead")
