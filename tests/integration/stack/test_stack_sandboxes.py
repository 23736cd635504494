"""Sandboxes end with the stack, although they start with an empty environment."""

import os

import pytest
from integration.stack.observed import parts_of, survivors
from trialog.cli.stack import Stack, StackOptions
from trialog.cli.stack.reaper import NAME_MARK
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.provider import SandboxSpec
from trialog.sandbox.worlds import reference

pytestmark = pytest.mark.stack


async def test_live_sandbox_ends_with_the_stack() -> None:
    world = reference.build("w0")
    assert NAME_MARK not in os.environ  # so only its mounts betray the sandbox
    async with Stack(StackOptions(with_ray=False, with_services=False)) as stack:
        before = parts_of(stack.layout.root)
        # Its worker is this test, which the stack did not start and leaves alone.
        provider = BubblewrapProvider(stack.layout.sandboxes, orphan_ttl_s=600)
        await provider.prepare(world.digest(), world.tar_bytes())
        sandbox = await provider.create("left", SandboxSpec(world.digest()))
        await sandbox.exec("go", ["sh", "-c", "sleep 600 >/dev/null 2>&1 &"], timeout_s=10)
        parts = [part for part in parts_of(stack.layout.root) if part not in before]
        assert "sleep" in [part.name() for part in parts]
        root = stack.layout.root
    assert await survivors(parts) == []
    assert parts_of(root) == []
    await provider.close()
