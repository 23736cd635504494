"""A worker process for tests to kill: makes a sandbox, runs a command in it, says so and waits.

Usage: worker.py ROOT SANDBOX_ID ORPHAN_TTL_S
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.provider import SandboxSpec
from trialog.sandbox.worlds import reference


async def main(root: str, sandbox_id: str, orphan_ttl_s: str) -> None:
    world = reference.build("w0")
    provider = BubblewrapProvider(Path(root), orphan_ttl_s=float(orphan_ttl_s))
    await provider.prepare(world.digest(), world.tar_bytes())
    sandbox = await provider.create(sandbox_id, SandboxSpec(world.digest()))
    script = "sleep 1000 & echo $(od -An -N8 -tx8 /dev/urandom) | tee kept.txt"
    result = await sandbox.exec("first", ["sh", "-c", script])
    hang = ["sh", "-c", "touch /tmp/up; sleep 1000"]
    hanging = asyncio.ensure_future(sandbox.exec("hang", hang))
    await sandbox.exec("up", ["sh", "-c", "until [ -e /tmp/up ]; do sleep 0.01; done"])
    print(result.stdout.decode().strip(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    hanging.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
