"""A worker process for tests to kill, with a sandbox from an image.

Usage: image_worker.py ROOT SANDBOX_ID ORPHAN_S (started | building | saving | unsaved | saved)
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from trialog.sandbox.bubblewrap import rooted
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.images import ImageSpec, Recipe

CONTEXT = Path(__file__).parent
RECIPE = Recipe(CONTEXT, None, docker_image="base", images={"base": "host"})


async def main(root: str, sandbox_id: str, orphan_s: str, phase: str) -> None:
    """Get to a phase, say so and wait to be killed."""
    provider = BubblewrapProvider(Path(root), orphan_s=float(orphan_s))
    if phase == "building":
        context = Path(root).parent / "context"
        building = asyncio.ensure_future(provider.build(Recipe(context, images={"base": "host"})))
        await asyncio.to_thread(sys.stdin.read)
        building.cancel()
        return
    image = await provider.build(RECIPE)
    resumable = phase not in ("unsaved", "saved")
    rooted.UNSAVED_ORPHAN_S = 0.3
    spec = ImageSpec(image.digest, env={"KEPT": "env"}, resumable=resumable)
    sandbox = await provider.start(sandbox_id, spec)
    script = "(while :; do date > /beat; done) > /dev/null 2>&1 & od -An -N8 -tx8 /dev/urandom"
    result = await sandbox.exec("first", ["sh", "-c", script])
    if phase == "saved":
        await sandbox.save(Path(root) / "state", 1 << 20)
    if phase == "saving":
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def never(*_: object, **__: object) -> None:
            """Stand in for a save that takes for ever."""
            loop.call_soon_threadsafe(begun.set)
            sys.stdin.read()

        rooted.state.pack = never  # type: ignore[assignment]
        saving = asyncio.ensure_future(sandbox.save(Path(root) / "state", 1 << 20))
        await begun.wait()
        print(result.stdout.decode().strip(), flush=True)
        await saving
    print(result.stdout.decode().strip(), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
