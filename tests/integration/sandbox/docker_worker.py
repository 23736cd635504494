"""A worker process for tests to kill: starts a container, runs commands in it, says so and waits.

Usage: docker_worker.py ROOT SANDBOX_ID ORPHAN_TTL_S IMAGE
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from trialog.sandbox.docker.provider import DockerProvider
from trialog.sandbox.images import ImageSpec


async def main(root: str, sandbox_id: str, orphan_ttl_s: str, image: str) -> None:
    address = os.environ.get("TRIALOG_DOCKER_HOST") or os.environ["DOCKER_HOST"]
    provider = DockerProvider(Path(root), address=address, orphan_ttl_s=float(orphan_ttl_s))
    sandbox = await provider.start(sandbox_id, ImageSpec(image))
    script = "sleep 1000 & echo $(od -An -N8 -tx8 /dev/urandom) | tee /kept.txt"
    result = await sandbox.exec("first", ["sh", "-c", script])
    hanging = asyncio.ensure_future(sandbox.exec("hang", ["sh", "-c", "touch /tmp/up; sleep 1000"]))
    await sandbox.exec("up", ["sh", "-c", "until [ -e /tmp/up ]; do sleep 0.01; done"])
    print(result.stdout.decode().strip(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    hanging.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
