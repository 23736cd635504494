"""One trial of a task in a worker's hands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from trialog.proto.ids import parse_trial_id
from trialog.proto.runspec import RunSpec, world_of
from trialog.sandbox.errors import SandboxGoneError
from trialog.sandbox.images import ImageProvider, ImageSandbox, Network
from trialog.sandbox.trials.host import Host
from trialog.sandbox.trials.plan import Place, Plan, plan
from trialog.spine.consumer import Held
from trialog.spine.tasks.store import OpenTask


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial, the task that it is of, and the worker's means for it. ``folder`` is for files on
    their way, and goes when the worker is done."""

    host: Host
    held: Held
    trial_id: str
    world_id: str
    task: OpenTask
    plan: Plan
    folder: Path

    @property
    def spec(self) -> RunSpec:
        """What the run was asked to do."""
        return self.held.run.spec

    @property
    def provider(self) -> ImageProvider:
        """The run's provider of sandboxes."""
        return self.host.provider(self.spec)

    @property
    def grader(self) -> str:
        """What the verifier is by content: its code, and the task's tests."""
        return self.held.run.keys.verify(self.world_id, "")

    def sandbox_id(self, *parts: str | int) -> str:
        """Return the name of a sandbox of this trial."""
        return ".".join((self.held.run.run_id, self.trial_id, *map(str, parts)))

    def state_file(self, stage: int) -> Path:
        """Return where the state of a stage lies on this host, if it does."""
        return self.folder / f"state-{stage}"

    async def state(self, stage: int, blob: str) -> Path:
        """Return a stage's state as a file, fetched if it is not here yet."""
        path = self.state_file(stage)
        if not await asyncio.to_thread(path.exists):
            await self.host.blobs.fetch(blob, path)
        return path

    @asynccontextmanager
    async def sandbox(
        self, sandbox_id: str, place: Place, network: Network, states: Sequence[Path] = ()
    ) -> AsyncGenerator[tuple[ImageSandbox, bool]]:
        """Yield a sandbox to grade in, and whether a worker before us started it; destroy it.

        Raises ImageError, SandboxError.
        """
        try:
            found, was_here = await self.provider.resume(sandbox_id), True
        except SandboxGoneError:
            start = self.host.start(self.spec, sandbox_id, place, network, states)
            found, was_here = await start, False
        try:
            yield found, was_here
        finally:
            await found.destroy()


async def trial_of(host: Host, held: Held, trial_id: str, folder: Path) -> Trial:
    """Return the trial that a worker holds. Raises TaskProblem, BlobMissingError."""
    world_id = world_of(held.run.spec, parse_trial_id(trial_id))
    task = await host.open(held.run.keys.task(world_id).blob)
    return Trial(host, held, trial_id, world_id, task, plan(task), folder)
