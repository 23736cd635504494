"""The agent's part of a trial: set-up, its try at each stage, and the states that it leaves."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from trialog.proto import events as ev
from trialog.proto.canonical import bytes_digest
from trialog.proto.keys import agent_code
from trialog.proto.seeds import seed
from trialog.proto.tasks.config import Collect
from trialog.sandbox import record
from trialog.sandbox.agent import Agent, Try
from trialog.sandbox.errors import TaskError, TrialTimedOutError
from trialog.sandbox.images import ImageSandbox
from trialog.sandbox.loading import load
from trialog.sandbox.record import Tried
from trialog.sandbox.shell import Shell
from trialog.sandbox.snapshot import Snapshot
from trialog.sandbox.trajectory.atif import Actor
from trialog.sandbox.trajectory.log import Recorder
from trialog.sandbox.trials import rewards, setup
from trialog.sandbox.trials.faults import strike
from trialog.sandbox.trials.kept import Result
from trialog.sandbox.trials.plan import Stage, allowed
from trialog.sandbox.trials.states import save
from trialog.sandbox.trials.trial import Trial
from trialog.sandbox.trials.verifying import Left, grade_early
from trialog.sandbox.trying import Ended, let_try
from trialog.spine import telemetry
from trialog.spine.consumer import AttemptFailedError

_LEAST_S = 0.001
_ORACLE = "oracle"


@dataclass(frozen=True, slots=True)
class Played:
    """A try that is over: its fact, the blobs that go with it, and the sandbox, still alive."""

    fact: ev.TrajectoryRecorded
    inline: Sequence[bytes]
    sandbox: ImageSandbox


async def play(trial: Trial, requested: ev.TrialRequested) -> Played:
    """Let the agent try in a new sandbox. Nothing is left of it when this raises.

    Raises AttemptFailedError, TaskError, AgentError, SandboxError, ImageError, UnhealthyError.
    """
    spec, host, place = trial.spec, trial.host, trial.plan.place
    await strike(trial.held, trial.trial_id)
    agent = await load(spec.agent, spec.agent_options, host.agent_modules)
    weights = await host.blobs.get(requested.weights_digest)
    await _check_image(trial, requested.world_digest)
    # The fence makes the name new for each claim: a late life of an old one is not met.
    name = trial.sandbox_id(trial.held.fence)
    network = allowed(trial.plan.network, spec.network)
    sandbox = await host.start(spec, name, place, network, resumable=False)
    try:
        ready = await setup.make_ready(sandbox, place.environment.workdir)
        await setup.wait_for_health(sandbox, place.environment.healthcheck, "image")
        playing = _Playing(trial, agent, weights, sandbox, ready.baked_tests)
        await playing.all_stages()
        return await playing.played(requested)
    except BaseException:  # also on cancellation nothing may stay behind
        await sandbox.destroy()
        raise


async def _check_image(trial: Trial, wanted: str) -> None:
    image = await trial.host.image(trial.spec, trial.plan.place)
    if image.digest != wanted:
        raise AttemptFailedError(
            "infrastructure",
            f"this worker's image has the digest {image.digest} and the run's {wanted}: "
            "they are not made from the same bases",
            "ImageMismatchError",
        )


@dataclass(slots=True)
class _Playing:
    """What a try has come to so far. ``spent_s`` is what the agent took of the trial's time."""

    trial: Trial
    agent: Agent
    weights: bytes
    sandbox: ImageSandbox
    baked_tests: bool
    spent_s: float = 0.0
    tries: list[Tried] = field(default_factory=list[Tried])
    results: list[Result] = field(default_factory=list[Result])
    inline: list[bytes] = field(default_factory=list[bytes])
    final: Snapshot = field(default_factory=lambda: Snapshot(()))

    async def all_stages(self) -> None:
        """Play one stage after another, as long as their gates let the agent go on."""
        for stage in self.trial.plan.stages:
            if not await self._stage(stage):
                return

    async def _stage(self, stage: Stage) -> bool:
        """Play a stage; return whether the agent may go on."""
        workdir = self.trial.plan.place.environment.workdir
        await setup.begin_step(self.sandbox, stage, workdir)
        await setup.wait_for_health(self.sandbox, stage.healthcheck, str(stage.number), stage.user)
        log, started_at = Recorder(), time.time()
        ended = await self._try(stage, log)
        if ended.error == TrialTimedOutError.name:
            await self.sandbox.kill_all()
        for n, hook in enumerate(stage.hooks):
            await self._collect(f"collect-{stage.number}-{n}", hook)
        if stage.grading.is_separate and stage.is_last:
            await self.sandbox.kill_all()  # only files reach the verifier: now they stand still
        services = await self.sandbox.processes()
        saved = await save(self.trial, self.sandbox, stage.number)
        result = Result(saved.blob, services, started_at, time.time(), self.baked_tests)
        result, goes_on = await self._graded(stage, result)
        self.inline += saved.inline
        self.final = saved.snapshot
        self.results.append(result)
        self.tries.append(
            Tried(
                log,
                stage.name,
                ended.error,
                ended.message,
                result.kept(),
                saved.snapshot.digest(),
            )
        )
        return goes_on

    async def _try(self, stage: Stage, log: Recorder) -> Ended:
        spec, task = self.trial.spec, self.trial.task
        left_s = max(_LEAST_S, spec.timeouts.trial_s - self.spent_s)
        timeout_s = min(stage.timeout_s or math.inf, left_s)
        shell = Shell(self.sandbox, log, timeout_s, step=stage.number, user=stage.user)
        is_oracle = spec.agent == _ORACLE
        trial = Try(
            self.trial.trial_id,
            task.instruction(stage.step),
            stage.name,
            shell,
            log,
            seed("agent", self.trial.trial_id, run_seed=spec.seed),
            self.weights,
            timeout_s,
            task.solution(stage.step) if is_oracle else None,
            task.config.solution.env if is_oracle else {},
        )
        begun = time.monotonic()
        try:
            return await let_try(self.agent, trial, shell)
        finally:
            self.spent_s += time.monotonic() - begun

    async def _collect(self, exec_id: str, hook: Collect) -> None:
        """Run a collect hook. What fails in it fails no trial."""
        argv = ["sh", "-c", hook.command]
        done = await self.sandbox.exec(exec_id, argv, timeout_s=hook.timeout_sec, user=hook.user)
        if done.exit_code != 0:
            telemetry.logger().info("a collect hook failed", hook=exec_id, said=setup.said(done))

    async def _graded(self, stage: Stage, result: Result) -> tuple[Result, bool]:
        """Grade a stage before the next one begins, where that decides whether there is one, or
        where services are part of what is graded and will not be the same afterwards.

        One that cannot be graded ends the try; what is wrong is the verify stage's to find.
        """
        in_place = result.services > 0 and not stage.grading.is_separate
        if stage.is_last or (stage.grading.min_reward is None and not in_place):
            return result, True
        try:
            graded, inline = await grade_early(self.trial, stage, Left(result, self.sandbox))
        except TaskError as error:
            telemetry.logger().info("a step cannot be graded", step=stage.name, reason=str(error))
            return result, False
        self.inline += inline
        closed = rewards.gate(graded.rewards, stage.grading.min_reward)
        return replace(result, grader=self.trial.grader, graded=graded), closed is None

    async def played(self, requested: ev.TrialRequested) -> Played:
        """Return the fact of it all."""
        trial, held = self.trial, self.trial.held
        session = f"{held.run.run_id}/{trial.trial_id}"
        actor = Actor(self.agent.name, self.agent.version)
        kept = record.keep_task(session, actor, self.tries, self.final)
        for data in (*kept.documents, kept.blob):
            self.inline += (await trial.host.blobs.stage(data))[1]
        last = self.results[-1]
        key = held.run.keys.generate(
            trial.trial_id, requested.world_digest, requested.weights_digest
        )
        fact = ev.TrajectoryRecorded(
            trial.trial_id,
            requested.step,
            key,
            kept.digest,
            bytes_digest(kept.blob),
            kept.n_turns,
            held.injected,
            held.worker,
            unpinned=agent_code(trial.spec) in held.run.other,
            state=last.state,
            sandbox=self.sandbox.sandbox_id,
            error=next((tried.error for tried in self.tries if tried.error), ""),
            services=last.services,
        )
        return Played(fact, self.inline, self.sandbox)
