"""What a sandbox does with its work on tasks: build images, let agents try, grade."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from trialog.proto import events as ev
from trialog.proto.keys import verifier_code
from trialog.proto.tasks.files import TaskProblem
from trialog.sandbox.errors import (
    AgentError,
    ImageError,
    SandboxBusyError,
    SandboxError,
    SandboxGoneError,
    TaskError,
    WorldError,
)
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.trials import health
from trialog.sandbox.trials.broken import traces_kept
from trialog.sandbox.trials.health import UnhealthyError
from trialog.sandbox.trials.host import Host
from trialog.sandbox.trials.plan import plan
from trialog.sandbox.trials.playing import play
from trialog.sandbox.trials.trial import Trial, trial_of
from trialog.sandbox.trials.verifying import verify
from trialog.spine import lineage
from trialog.spine.consumer import AttemptFailedError, Held

_MESSAGE = 480
_BUILD = "SandboxBuildFailedError"


class TaskTrials:
    """Handlers of a sandbox's two queues for runs of tasks."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def on_world_requested(self, held: Held) -> None:
        """Build a task's image here, and tell the digest that it has everywhere."""
        fact = held.origin
        assert isinstance(fact, ev.WorldRequested)
        async with _failures():
            task = await self._host.open(fact.task)
            image = await self._host.image(held.run.spec, plan(task).place)
        key = held.run.keys.world(fact.world_id)
        await held.finish(ev.WorldBuilt(fact.world_id, key, image.digest))

    async def on_trial(self, held: Held) -> None:
        """Let the agent try, keep what it left, and grade it; each stage is a fact."""
        fact = held.origin
        assert isinstance(fact, ev.TrialRequested | ev.TrajectoryRecorded)
        async with self._host.scratch.folder() as folder:
            async with _failures():
                trial = await trial_of(self._host, held, fact.trial_id, folder)
            if isinstance(fact, ev.TrajectoryRecorded):
                await self._go_on(trial, fact)
            else:
                await self._from_the_start(trial, fact)

    async def _from_the_start(self, trial: Trial, fact: ev.TrialRequested) -> None:
        async with _failures(), traces_kept(trial):
            played = await play(trial, fact)
        async with _at_last(trial, played.fact, played.sandbox):
            await trial.held.finish_and_go_on(played.fact, played.inline)
            await self._verify(trial, played.fact, played.sandbox, was_here=False)

    async def _go_on(self, trial: Trial, fact: ev.TrajectoryRecorded) -> None:
        """Grade what another worker recorded: in its sandbox, if that is alive on this host."""
        sandbox: ImageSandbox | None = None
        if fact.sandbox and fact.provenance is None:
            async with _failures():
                sandbox = await _resumed(trial, fact.sandbox)
        if sandbox is None:
            await self._verify(trial, fact, None, was_here=False)
            return
        async with _at_last(trial, fact, sandbox):
            await self._verify(trial, fact, sandbox, was_here=True)

    async def _verify(
        self,
        trial: Trial,
        fact: ev.TrajectoryRecorded,
        sandbox: ImageSandbox | None,
        *,
        was_here: bool,
    ) -> None:
        kept = await _recovered(trial, fact)
        if kept is not None:
            await trial.held.finish(kept)
            return
        async with _failures():
            verified, inline = await verify(trial, fact, sandbox, was_here=was_here)
        await trial.held.finish(verified, blobs=inline)


async def _resumed(trial: Trial, sandbox_id: str) -> ImageSandbox | None:
    try:
        return await trial.provider.resume(sandbox_id)
    except (SandboxGoneError, SandboxBusyError):
        return None


async def _recovered(trial: Trial, fact: ev.TrajectoryRecorded) -> ev.TrialVerified | None:
    """Return the verdict that an ancestor has of the same: it is not made again."""
    run = trial.held.run
    key = run.keys.verify(trial.world_id, fact.digest)
    slot = f"verified:{fact.trial_id}"
    ancestors = run.request.lineage
    kept = await lineage.recovered(trial.held.log, ancestors, slot, key, ev.TrialVerified)
    if kept is None:
        return None
    unpinned = fact.unpinned or verifier_code(run.spec) in run.other
    return replace(kept, blob=fact.blob, settled=False, unpinned=unpinned)


@asynccontextmanager
async def _at_last(
    trial: Trial, fact: ev.TrajectoryRecorded, sandbox: ImageSandbox
) -> AsyncGenerator[None]:
    """Destroy the agent's sandbox in the end.

    Only when this process is stopped while services of a recorded trajectory live in it, it is
    left: a worker that comes soon goes on in it, and without one its own time ends it.
    """
    try:
        yield
    except BaseException as error:
        if not (_is_stopped(trial, error) and fact.services):
            await sandbox.destroy()
        raise
    else:
        await sandbox.destroy()


def _is_stopped(trial: Trial, error: BaseException) -> bool:
    is_cancelled = not isinstance(error, Exception)
    return is_cancelled and not trial.held.given_up


@asynccontextmanager
async def _failures() -> AsyncGenerator[None]:
    """Turn what went wrong into the verdict on the attempt."""
    try:
        yield
    except TaskError as error:
        raise _failed(error.failure, error, error.name, error.record) from error
    except TaskProblem as error:
        raise _failed("task", error, "TaskProblem") from error
    except AgentError as error:
        raise _failed(error.failure, error, error.name, error.record) from error
    except UnhealthyError as error:
        raise _failed("infrastructure", error, health.NAME) from error
    except ImageError as error:
        raise _failed(error.failure, error, _BUILD) from error
    except (SandboxError, WorldError) as error:
        raise _failed(error.failure, error, type(error).__name__) from error


def _failed(failure: str, error: Exception, name: str, record: str = "") -> AttemptFailedError:
    """A long message is cut in its middle: a build's last lines say what went wrong."""
    text = str(error)
    if len(text) > _MESSAGE:
        text = f"{text[:100]} ... {text[-(_MESSAGE - 105) :]}"
    return AttemptFailedError(failure, text, name, record)
