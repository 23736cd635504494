"""Fixtures that every test may ask for (tests/support/)."""

from __future__ import annotations

import pytest

pytest_plugins = ["support.stack", "support.cluster"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts real services by asking for the session's stack."""
    for item in items:
        if {"stack", "cluster"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.stack)
