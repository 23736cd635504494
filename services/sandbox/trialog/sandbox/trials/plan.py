"""What a trial of a task comes to, stage by stage.

A plain task has one stage without a name, a multi-step task one for each of its steps. What a step
does not say itself is the task's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trialog.proto.tasks.config import (
    Artifact,
    Collect,
    Environment,
    Healthcheck,
    NetworkMode,
    Step,
    User,
    Verifier,
)
from trialog.proto.tasks.task import steps_of
from trialog.sandbox.images import Network, Recipe
from trialog.sandbox.provider import Limits
from trialog.spine.tasks.store import OpenTask

AGENT_LOGS, VERIFIER_LOGS, ARTIFACTS = "/logs/agent", "/logs/verifier", "/logs/artifacts"
TESTS, SCRIPT = "/tests", "/tests/test.sh"
_MAIN = "main"
_PIDS = 1024


@dataclass(frozen=True, slots=True)
class Place:
    """What a sandbox is made from: its image's folder or name, and its settings.

    ``bundled``: the image brings its own /tests, and nothing is uploaded there.
    """

    context: Path
    environment: Environment
    docker_image: str | None = None
    bundled: bool = False

    def recipe(self, images: Mapping[str, str], network: Network) -> Recipe:
        """Return how its image is had, in a run with these images and that much network."""
        return Recipe(
            self.context,
            None if self.docker_image else "Dockerfile",
            self.docker_image,
            images,
            network,
            self.environment.build_timeout_sec,
        )

    @property
    def limits(self) -> Limits:
        """The limits of a sandbox, ours where the task says nothing."""
        ours, given = Limits(), self.environment
        return Limits(
            given.memory_mb << 20 if given.memory_mb else ours.memory_bytes,
            _PIDS,
            given.storage_mb << 20 if given.storage_mb else ours.disk_bytes,
            ours.output_bytes,
            given.cpus,
        )


@dataclass(frozen=True, slots=True)
class Grading:
    """How a stage is graded.

    ``place`` is the verifier's own sandbox in separate mode, None where it is graded in the
    agent's image. ``tests`` are folders, a later one laid over the earlier.
    """

    place: Place | None
    timeout_s: float
    user: User | None
    env: Mapping[str, str]
    tests: tuple[Path, ...]
    network: NetworkMode | None
    artifacts: tuple[Artifact, ...]
    min_reward: float | Mapping[str, float] | None = None

    @property
    def is_separate(self) -> bool:
        """Whether only artifacts reach the verifier."""
        return self.place is not None


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a task, or a plain task whole (``name`` None).

    ``files`` are put into the workdir before the step, and a setup.sh among them is run;
    ``hooks`` are run once the agent has ended.
    """

    name: str | None
    number: int
    is_last: bool
    step: Step | None
    files: Path | None
    user: User | None
    timeout_s: float | None
    healthcheck: Healthcheck | None
    hooks: tuple[Collect, ...]
    grading: Grading


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole trial: where the agent plays, and the stages in their order."""

    place: Place
    network: NetworkMode | None
    stages: tuple[Stage, ...]


def plan(task: OpenTask) -> Plan:
    """Return what a trial of a task comes to."""
    config, steps = task.config, steps_of(task.config)
    place = Place(task.folder / "environment", config.environment, config.environment.docker_image)
    stages = tuple(_stage(task, step, n, n == len(steps) - 1) for n, step in enumerate(steps))
    return Plan(place, config.agent.network_mode or config.environment.network_mode, stages)


def _stage(task: OpenTask, step: Step | None, number: int, is_last: bool) -> Stage:
    config = task.config
    agent = step.agent if step else config.agent
    hooks = [*config.verifier.collect, *(step.verifier.collect if step else ())]
    return Stage(
        step.name if step else None,
        number,
        is_last,
        step,
        task.workdir(step) if step else None,
        config.agent.user if agent.user is None else agent.user,
        agent.timeout_sec or config.agent.timeout_sec,
        step.healthcheck if step else None,
        tuple(hook for hook in hooks if hook.service == _MAIN),
        _grading(task, step),
    )


def _grading(task: OpenTask, step: Step | None) -> Grading:
    config = task.config
    whole, own = config.verifier, step.verifier if step else Verifier()
    # The format's default is a step's own even where the task says otherwise: not here.
    timed = own if "timeout_sec" in own.model_fields_set else whole
    return Grading(
        _verifier_place(task, step),
        timed.timeout_sec,
        whole.user if own.user is None else own.user,
        {**whole.env, **own.env},
        task.tests(step),
        own.network_mode or whole.network_mode,
        _artifacts([*config.artifacts, *(step.artifacts if step else ())]),
        step.min_reward if step else None,
    )


def _verifier_place(task: OpenTask, step: Step | None) -> Place | None:
    found = task.layout.verifier_image(step)
    if found is None:
        return None
    return Place(task.folder / found.context, found.environment, found.docker_image, found.bundled)


def _artifacts(given: Iterable[Artifact]) -> tuple[Artifact, ...]:
    """Return the artifacts of the one service that is run, with the folder that all tasks have."""
    own = [each for each in given if each.service in (None, _MAIN)]
    if not any(each.source.rstrip("/") == ARTIFACTS for each in own):
        own.insert(0, Artifact(source=ARTIFACTS))
    return tuple(own)


def allowed(asked: NetworkMode | None, run: Network) -> Network:
    """Return the network that a sandbox gets: what its task asks for, as far as the run allows."""
    return "public" if asked == "public" and run == "public" else "none"
