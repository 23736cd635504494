"""What a trial of a task comes to, stage by stage. Pure but for looking which folders are there.

A plain task has one stage without a name, a multi-step task one for each of its steps. What a step
does not say itself is the task's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trialog.proto.tasks.config import (
    Artifact,
    Collect,
    Environment,
    Healthcheck,
    NetworkMode,
    Step,
    TaskConfig,
    User,
    Verifier,
)
from trialog.sandbox.images import Network, Recipe
from trialog.sandbox.provider import Limits

AGENT_LOGS, VERIFIER_LOGS, ARTIFACTS = "/logs/agent", "/logs/verifier", "/logs/artifacts"
TESTS, SCRIPT = "/tests", "/tests/test.sh"
MAIN = "main"
_PIDS = 1024

Mode = Literal["shared", "separate"]


@dataclass(frozen=True, slots=True)
class Place:
    """What a sandbox is made from: its image's folder or name, and its settings.

    ``bundled``: the image brings its own /tests, nothing is uploaded there.
    """

    context: Path
    environment: Environment
    docker_image: str | None
    bundled: bool = False

    def recipe(self, images: dict[str, str], network: Network) -> Recipe:
        """Return how its image is built, in a run with these images and that much network."""
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
    """How a stage is graded. ``place`` is the verifier's own sandbox in separate mode.

    ``tests`` are folders, the later laid over the earlier.
    """

    mode: Mode
    timeout_s: float
    user: User | None
    env: dict[str, str]
    tests: tuple[Path, ...]
    place: Place | None
    network: NetworkMode | None
    hooks: tuple[Collect, ...]
    artifacts: tuple[Artifact, ...]
    min_reward: float | dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a task, or a plain task whole (``name`` None).

    ``files`` are put into the workdir before the step; a setup.sh among them is run.
    """

    name: str | None
    number: int
    last: bool
    instruction: Path
    solution: Path
    files: Path | None
    user: User | None
    timeout_s: float | None
    healthcheck: Healthcheck | None
    grading: Grading

    @property
    def label(self) -> str:
        """A word for its exec ids and names: its number."""
        return str(self.number)


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole trial: where the agent plays, and the stages in their order."""

    config: TaskConfig
    place: Place
    network: NetworkMode | None
    stages: tuple[Stage, ...]


def plan(config: TaskConfig, folder: Path) -> Plan:
    """Return what a trial of the task in a folder comes to. ``parse`` has checked the settings."""
    place = Place(folder / "environment", config.environment, config.environment.docker_image)
    steps: Sequence[Step | None] = config.steps or [None]
    stages = tuple(
        _stage(config, folder, place, step, number, len(steps)) for number, step in enumerate(steps)
    )
    network = config.agent.network_mode or config.environment.network_mode
    return Plan(config, place, network, stages)


def _stage(
    config: TaskConfig, folder: Path, place: Place, step: Step | None, number: int, count: int
) -> Stage:
    own = folder if step is None else folder / "steps" / step.name
    solution, files = own / "solution", own / "workdir"
    agent = config.agent if step is None else step.agent
    return Stage(
        None if step is None else step.name,
        number,
        number == count - 1,
        own / "instruction.md",
        solution if solution.is_dir() else folder / "solution",
        files if step is not None and files.is_dir() else None,
        agent.user if agent.user is not None else config.agent.user,
        agent.timeout_sec or config.agent.timeout_sec,
        None if step is None else step.healthcheck,
        _grading(config, folder, place, step),
    )


def _grading(config: TaskConfig, folder: Path, place: Place, step: Step | None) -> Grading:
    task, own = config.verifier, Verifier() if step is None else step.verifier
    mode = config.mode(step)
    timed = own if "timeout_sec" in own.model_fields_set else task
    return Grading(
        mode,
        timed.timeout_sec,
        own.user if own.user is not None else task.user,
        {**task.env, **own.env},
        _tests(folder, step),
        _place(config, folder, place, step) if mode == "separate" else None,
        own.network_mode or task.network_mode,
        tuple(hook for hook in [*task.collect, *own.collect] if hook.service == MAIN),
        _artifacts([*config.artifacts, *([] if step is None else step.artifacts)]),
        None if step is None else step.min_reward,
    )


def _tests(folder: Path, step: Step | None) -> tuple[Path, ...]:
    found = [folder / "tests"]
    if step is not None:
        found.append(folder / "steps" / step.name / "tests")
    return tuple(tests for tests in found if tests.is_dir())


def _place(config: TaskConfig, folder: Path, place: Place, step: Step | None) -> Place:
    """Return the verifier's own sandbox: the nearest image that is declared or has a Dockerfile
    beside its tests, else another sandbox of the task's image, into which tests are uploaded."""
    own = None if step is None else step.verifier.environment
    settings = own or config.verifier.environment or config.environment
    candidates = [(config.verifier.environment, folder / "tests")]
    if step is not None:
        candidates.insert(0, (own, folder / "steps" / step.name / "tests"))
    for environment, tests in candidates:
        if environment is not None and environment.docker_image:
            return Place(tests, settings, environment.docker_image, bundled=True)
        if (tests / "Dockerfile").is_file():
            return Place(tests, settings, None, bundled=True)
    return Place(place.context, settings, place.docker_image)


def _artifacts(given: Iterable[Artifact]) -> tuple[Artifact, ...]:
    """Return the artifacts of the one service that we run, with the folder that every agent has."""
    own = [each for each in given if each.service in (None, MAIN)]
    if not any(each.source.rstrip("/") == ARTIFACTS for each in own):
        own.insert(0, Artifact(source=ARTIFACTS))
    return tuple(own)


def allowed(asked: NetworkMode | None, run: Network) -> Network:
    """Return the network that a sandbox gets: what its task asks for, as far as the run allows."""
    return "public" if asked == "public" and run == "public" else "none"
