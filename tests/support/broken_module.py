"""A module that cannot be imported: what it needs is not set."""

from __future__ import annotations

AGENTS: dict[str, type] = {}
Agent = AGENTS["mine"]
