"""Grading what an agent left: in which sandbox, and what the grades of all stages come to.

- *separate*: in a fresh sandbox of the verifier's image, which only artifacts reach.
- *shared*: in the agent's sandbox, where something that the agent started is alive in it.
- *restored*: else, in a fresh sandbox of the agent's image with the saved state laid over it.

docs/grading.md says what an agent can bring about in each of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trialog.proto import events as ev
from trialog.proto.keys import verifier_code
from trialog.sandbox import record
from trialog.sandbox.errors import SandboxError, TaskError
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.trials import artifacts, left, rewards, setup
from trialog.sandbox.trials.grading import Bench
from trialog.sandbox.trials.kept import Graded, Result, result_of
from trialog.sandbox.trials.plan import Place, Stage, allowed
from trialog.sandbox.trials.rewards import Rewards
from trialog.sandbox.trials.trial import Trial
from trialog.spine.consumer import AttemptFailedError

SEPARATE, SHARED, RESTORED = "separate", "shared", "restored"
# From the one that an agent can meddle with most to the one where it can least.
_MODES = (SHARED, RESTORED, SEPARATE)


class ServicesLostError(SandboxError):
    """What the agent left running was part of the answer, and it is gone."""


@dataclass(frozen=True, slots=True)
class Left:
    """What an agent left: its result, and its sandbox if that is alive. ``was_here``: a worker
    before us may have begun to grade in it."""

    result: Result
    sandbox: ImageSandbox | None = None
    was_here: bool = False


async def grade_early(trial: Trial, stage: Stage, state: Left) -> tuple[Graded, Sequence[bytes]]:
    """Grade a stage while the agent's sandbox goes on; the blob of its record comes beside.

    Raises TaskError, SandboxError, ImageError.
    """
    grading = _Grading(trial, f"{trial.held.fence}.g", is_over=False)
    into = trial.folder / f"early-{stage.number}"
    into.mkdir()
    started_at = time.time()
    mode, found = await grading.grade(stage, state, into)
    digest, inline = await trial.host.blobs.stage(await asyncio.to_thread(left.pack, into))
    return Graded(mode, found, digest, started_at, time.time()), inline


async def keep(trial: Trial, folder: Path) -> str:
    """Return the blob of what lies in a folder, "" for nothing."""
    files = await asyncio.to_thread(lambda: list(folder.iterdir()))
    return await trial.host.blobs.put(await asyncio.to_thread(left.pack, folder)) if files else ""


async def verify(
    trial: Trial, fact: ev.TrajectoryRecorded, sandbox: ImageSandbox | None, *, was_here: bool
) -> tuple[ev.TrialVerified, Sequence[bytes]]:
    """Grade all stages of a trajectory; return the fact and the blobs that go with it.

    Raises AttemptFailedError for what is no reward, SandboxError, ImageError.
    """
    folder = trial.folder / "record"
    folder.mkdir()
    steps = record.read(await trial.host.blobs.get(fact.blob)).steps
    verifying = _Verifying(trial, folder, _Grading(trial, f"v{trial.held.failures}."))
    try:
        for stage, step in zip(trial.plan.stages, steps, strict=False):
            is_final = stage.number == len(steps) - 1
            state = Left(result_of(step), sandbox if is_final else None, was_here)
            await verifying.stage(stage, state)
        mode, found = verifying.outcome()
        reward = rewards.counting(found)
    except TaskError as error:
        kept = await keep(trial, folder)
        raise AttemptFailedError(error.failure, str(error), error.name, kept) from error
    if reward is None:
        kept = await keep(trial, folder)
        raise AttemptFailedError("task", "the verifier gave no reward: {}", "", kept)
    digest, inline = await trial.host.blobs.stage(await asyncio.to_thread(left.pack, folder))
    verified = ev.TrialVerified(
        fact.trial_id,
        fact.step,
        trial.held.run.keys.verify(trial.world_id, fact.digest),
        reward >= 1.0,
        None,
        fact.digest,
        fact.blob,
        fact.n_turns,
        unpinned=fact.unpinned or verifier_code(trial.spec) in trial.held.run.other,
        reward=reward,
        rewards=found,
        mode=mode,
        error=fact.error,
        record=digest,
    )
    return verified, inline


class _Verifying:
    """The grades of a trajectory's stages, one after another."""

    def __init__(self, trial: Trial, folder: Path, grading: _Grading) -> None:
        self._trial, self._folder, self._grading = trial, folder, grading
        self._rewards: list[Rewards] = []
        self._modes: list[str] = []
        self._closed = False

    async def stage(self, stage: Stage, state: Left) -> None:
        """Grade a stage, or take the grades that it was given when the agent was at it."""
        if self._closed:
            return
        into = self._folder if stage.name is None else self._folder / "steps" / stage.name
        into.mkdir(parents=True, exist_ok=True)
        graded = state.result.graded
        if graded is not None and state.result.grader == self._trial.grader:
            packed = await self._trial.host.blobs.get(graded.record)
            await asyncio.to_thread(left.unpack, packed, into)
            mode, found = graded.mode, graded.rewards
        else:
            mode, found = await self._grading.grade(stage, state, into)
        self._modes.append(mode)
        self._rewards.append(found)
        self._closed = rewards.gate(found, stage.grading.min_reward) is not None

    def outcome(self) -> tuple[str, Rewards]:
        """Return the mode, that of the stage which was graded least apart, and the rewards."""
        stages = self._trial.plan.stages
        if len(self._rewards) < len(stages) and not self._closed:
            raise TaskError(
                "StepMissingError",
                f"step {stages[len(self._rewards)].name!r} was not played: the step before it "
                "passes its gate now and did not then; the agent has to try again",
            )
        strategy = self._trial.task.config.multi_step_reward_strategy
        found = self._rewards[0] if len(stages) == 1 else rewards.combined(self._rewards, strategy)
        return min(self._modes, key=_MODES.index), found


class _Grading:
    """Grades stages of one trial. ``prefix`` begins the names of the sandboxes; ``is_over``: the
    agent's own sandbox is not needed afterwards."""

    def __init__(self, trial: Trial, prefix: str, *, is_over: bool = True) -> None:
        self._trial, self._prefix, self._is_over = trial, prefix, is_over

    async def grade(self, stage: Stage, state: Left, into: Path) -> tuple[str, Rewards]:
        """Return the mode and the rewards of a stage; what the verifier left comes into a folder.

        Raises TaskError, SandboxError, ImageError.
        """
        if stage.grading.place is not None:
            return SEPARATE, await self._separate(stage, stage.grading.place, state, into)
        if not state.result.services:
            return RESTORED, await self._restored(stage, state, into)
        if state.sandbox is None:
            raise ServicesLostError(
                f"{state.result.services} processes that the agent left running are gone with "
                "their sandbox; without them its work cannot be graded"
            )
        bench = Bench(
            state.sandbox,
            f"verify-{stage.number}",
            self._mark(stage, state),
            state.result.baked_tests,
            self._is_over,
        )
        return SHARED, await self._run(bench, stage, state.was_here, into)

    async def _run(self, bench: Bench, stage: Stage, was_here: bool, into: Path) -> Rewards:
        grading = stage.grading
        if not (was_here and await bench.is_marked()):
            bundled = grading.place is not None and grading.place.bundled
            await bench.lay_ready(grading, bundled=bundled)
        return await bench.grade(grading, into)

    async def _restored(self, stage: Stage, state: Left, into: Path) -> Rewards:
        if state.sandbox is not None and self._is_over:
            await state.sandbox.destroy()  # its memory is the other's now
        place = self._trial.plan.place
        network = stage.grading.network or place.environment.network_mode
        name = self._trial.sandbox_id(f"{self._prefix}{stage.number}")
        path = await self._trial.state(stage.number, state.result.state)
        around = self._trial.sandbox(
            name, place, allowed(network, self._trial.spec.network), [path]
        )
        async with around as (sandbox, was_here):
            bench = Bench(
                sandbox,
                f"verify-{stage.number}",
                self._mark(stage, state),
                state.result.baked_tests,
            )
            return await self._run(bench, stage, was_here, into)

    async def _separate(self, stage: Stage, place: Place, state: Left, into: Path) -> Rewards:
        trial, network = self._trial, stage.grading.network or place.environment.network_mode
        name = trial.sandbox_id(f"{self._prefix}{stage.number}")
        around = trial.sandbox(name, place, allowed(network, trial.spec.network))
        async with around as (sandbox, was_here):
            label = f"verify-{stage.number}"
            bench = Bench(sandbox, label, self._mark(stage, state), has_tests=place.bundled)
            if not (was_here and await bench.is_marked()):
                await setup.make_ready(sandbox, place.environment.workdir)
                await self._carry(stage, state, sandbox)
            return await self._run(bench, stage, was_here, into)

    async def _carry(self, stage: Stage, state: Left, target: ImageSandbox) -> None:
        """Bring the artifacts: from the agent's sandbox, where nothing lives any more, or from
        another with the saved state."""
        label = str(stage.number)
        declared, scratch = stage.grading.artifacts, self._trial.folder / f"artifacts-{label}"
        scratch.mkdir()
        if state.sandbox is not None and self._is_over:
            await artifacts.carry(state.sandbox, target, declared, scratch, label)
            return
        path = await self._trial.state(stage.number, state.result.state)
        name = self._trial.sandbox_id(f"{self._prefix}{label}", "source")
        around = self._trial.sandbox(name, self._trial.plan.place, "none", [path])
        async with around as (source, _):
            await artifacts.carry(source, target, declared, scratch, label)

    def _mark(self, stage: Stage, state: Left) -> str:
        """Return what another worker knows and nobody inside: no state can hold its own digest."""
        text = f"{state.result.state}/{self._trial.grader}/{stage.number}"
        return hashlib.sha256(text.encode()).hexdigest()
