"""Real sandboxes over the reference world, below a folder of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.provider import SandboxSpec
from trialog.sandbox.worlds import reference

WORLD = reference.build("w0")


@pytest.fixture
def spec() -> SandboxSpec:
    return SandboxSpec(WORLD.digest())


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[BubblewrapProvider]:
    made = BubblewrapProvider(tmp_path)
    await made.prepare(WORLD.digest(), WORLD.tar_bytes())
    yield made
    await made.close()
    await made.sweep([])  # what workers that the test killed have left
    assert list((tmp_path / "run").iterdir()) == []
