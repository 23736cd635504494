"""Where a task's folder has what: instructions, tests, solutions, images. Pure.

Of a multi-step task each step has ``steps/NAME/`` with an instruction, and may have tests and a
solution of its own; ``workdir/`` in it holds what is put into the sandbox before the step.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from trialog.proto.tasks.config import Environment, Step, TaskConfig

TEST_SCRIPT = "test.sh"
SOLVE_SCRIPT = "solve.sh"
SETUP_SCRIPT = "setup.sh"
COMPOSE = "docker-compose.yaml"
DOCKERFILE = "Dockerfile"


@dataclass(frozen=True, slots=True)
class VerifierImage:
    """What a separate verifier's sandbox is made from.

    ``context`` is the folder with its Dockerfile, below the task's, or ``docker_image`` a ready
    one. ``bundled``: the image has its tests at /tests already, so none are put there.
    """

    context: str
    docker_image: str | None
    environment: Environment
    bundled: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """A task's settings and the paths of its files, folders not among them."""

    config: TaskConfig
    paths: Collection[str]

    def has_folder(self, folder: str) -> bool:
        """Whether there is a file below a folder."""
        return any(path.startswith(f"{folder}/") for path in self.paths)

    def home(self, step: Step | None) -> str:
        """Return the folder of a step with a slash after it, or nothing for the task's own."""
        return f"steps/{step.name}/" if step else ""

    def instruction(self, step: Step | None) -> str:
        """Return the path of an instruction."""
        return f"{self.home(step)}instruction.md"

    def workdir(self, step: Step) -> str | None:
        """Return the folder of what is put into the working directory before a step."""
        folder = f"{self.home(step)}workdir"
        return folder if self.has_folder(folder) else None

    def tests(self, step: Step | None) -> tuple[str, ...]:
        """Return the folders that go to /tests, one over the other: the shared one first."""
        folders = dict.fromkeys(("tests", f"{self.home(step)}tests"))
        return tuple(folder for folder in folders if self.has_folder(folder))

    def has_test_script(self, step: Step | None) -> bool:
        """Whether /tests/test.sh is there once the tests are in place."""
        return any(f"{folder}/{TEST_SCRIPT}" in self.paths for folder in self.tests(step))

    def solution(self, step: Step | None) -> str | None:
        """Return the folder that goes to /solution: the step's own, else the task's. None where
        that has no solve.sh."""
        own = f"{self.home(step)}solution"
        folder = own if self.has_folder(own) else "solution"
        return folder if f"{folder}/{SOLVE_SCRIPT}" in self.paths else None

    def verifier_image(self, step: Step | None) -> VerifierImage | None:
        """Return what a step is graded in, None where it is graded in the agent's image.

        The step's own definition counts before the task's: a ready image that is named, else a
        Dockerfile among the tests; without any it is the agent's image anew.
        """
        config = self.config
        if config.mode(step) == "shared":
            return None
        own = step.verifier.environment if step else None
        chosen = own or config.verifier.environment or config.environment
        candidates = [(config.verifier.environment, "tests")]
        if step:
            candidates.insert(0, (own, f"{self.home(step)}tests"))
        for environment, folder in candidates:
            if environment is not None and environment.docker_image:
                return VerifierImage(folder, environment.docker_image, chosen, bundled=True)
            if f"{folder}/{DOCKERFILE}" in self.paths or f"{folder}/{COMPOSE}" in self.paths:
                return VerifierImage(folder, None, chosen, bundled=True)
        return VerifierImage("environment", config.environment.docker_image, chosen, bundled=False)
