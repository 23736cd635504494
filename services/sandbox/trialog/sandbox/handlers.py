"""What a sandbox does with its work, by what its run is of: the reference world, or tasks."""

from __future__ import annotations

from trialog.proto.runspec import RunSpec
from trialog.sandbox.reference_trials import ReferenceTrials
from trialog.sandbox.trials.handling import TaskTrials
from trialog.spine.consumer import Held


class Handlers:
    """Handlers of the sandbox's two queues."""

    def __init__(self, reference: ReferenceTrials, tasks: TaskTrials) -> None:
        self._reference, self._tasks = reference, tasks

    async def on_world_requested(self, held: Held) -> None:
        """Make a world: build the reference's, or a task's image."""
        await self._of(held.run.spec).on_world_requested(held)

    async def on_trial(self, held: Held) -> None:
        """Let the agent try, record its trajectory, and verify it; each stage is a fact."""
        await self._of(held.run.spec).on_trial(held)

    def _of(self, spec: RunSpec) -> ReferenceTrials | TaskTrials:
        return self._reference if spec.tasks is None else self._tasks
