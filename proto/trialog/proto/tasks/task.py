"""A whole task, read from its files: what must be there is there. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from trialog.proto.tasks.config import Step, TaskConfig
from trialog.proto.tasks.files import Files, TaskProblem, settled
from trialog.proto.tasks.layout import (
    COMPOSE,
    DOCKERFILE,
    SETUP_SCRIPT,
    SOLVE_SCRIPT,
    TEST_SCRIPT,
    Layout,
)
from trialog.proto.tasks.legacy import CONFIG
from trialog.proto.tasks.parse import parse

# A line by which benchmarks find their own texts in what a model was trained on.
_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
_SCRIPTS = frozenset({TEST_SCRIPT, SOLVE_SCRIPT, SETUP_SCRIPT})
# Two of these are a task whose task.toml was forgotten, not a folder of something else.
_SIGNS = frozenset({"instruction.md", "environment", "tests", "solution", "steps"})


@dataclass(frozen=True, slots=True)
class Task:
    """A task that can be read. ``files`` are settled; ``warnings`` are of what is ignored."""

    name: str
    config: TaskConfig
    files: Files
    warnings: tuple[str, ...] = ()

    @property
    def layout(self) -> Layout:
        """Where it has what."""
        there = {path for path, entry in self.files.items() if entry.kind != "dir"}
        return Layout(self.config, there)


def read_task(name: str, files: Files) -> Task:
    """Return the task of a folder's files. Raises TaskProblem, which names the file."""
    files = settled(files)
    if CONFIG not in files or files[CONFIG].kind != "file":
        raise TaskProblem(CONFIG, "is missing", "a task is a folder with a task.toml in it")
    config, warnings = parse(files[CONFIG].data)
    task = Task(name, config, files)
    for step in steps_of(config):
        instruction_of(files, task.layout.instruction(step))
        _check_tests(task.layout, step)
    _check_environment(task.layout)
    return Task(name, config, files, (*warnings, *_unread(task)))


def looks_like_task(names: Collection[str]) -> bool:
    """Whether a folder with these names in it is one of a task, if perhaps a broken one."""
    return CONFIG in names or len(_SIGNS.intersection(names)) > 1


def no_task(where: str) -> TaskProblem:
    """Return the problem of a place in which there is no task."""
    what = "holds no task: neither a task.toml nor a folder with one in it"
    return TaskProblem(where, what, "a task is a folder with a task.toml in it")


def steps_of(config: TaskConfig) -> list[Step | None]:
    """Return the steps of a task; of a task without any, the one that has no name."""
    return [*config.steps] or [None]


def instruction_of(files: Files, path: str) -> str:
    """Return an instruction as an agent is given it. Raises TaskProblem."""
    entry = files.get(path)
    if entry is None or entry.kind != "file":
        raise TaskProblem(path, "is missing", "say in it what the agent is to do")
    return instruction(path, entry.data)


def instruction(path: str, data: bytes) -> str:
    """Return a file's text as an agent is given it: without canary lines at its top.

    Raises TaskProblem for one that is empty or no UTF-8.
    """
    try:
        lines = data.decode().splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise TaskProblem(path, f"is not UTF-8 at byte {error.start}", "save it so") from None
    first = 0
    while first < len(lines) and _CANARY.fullmatch(lines[first].strip()):
        first += 1
    while first < len(lines) and not lines[first].strip():
        first += 1
    if first == len(lines):
        raise TaskProblem(path, "is empty", "say in it what the agent is to do")
    return "".join(lines[first:])


def _check_tests(layout: Layout, step: Step | None) -> None:
    image = layout.verifier_image(step)
    if (image is not None and image.bundled) or layout.has_test_script(step):
        return
    path = f"{layout.home(step)}tests/{TEST_SCRIPT}"
    raise TaskProblem(path, "is missing", "it writes the reward to /logs/verifier/reward.txt")


def _check_environment(layout: Layout) -> None:
    described = {f"environment/{name}" for name in (DOCKERFILE, COMPOSE)} & set(layout.paths)
    if layout.config.environment.docker_image is None and not described:
        mend = "write one, or name an image with [environment].docker_image"
        raise TaskProblem(f"environment/{DOCKERFILE}", "is missing", mend)


def _unread(task: Task) -> Iterator[str]:
    """Yield a warning for each file that the format reads and we do not, or a shell cannot."""
    layout = task.layout
    paths = sorted(layout.paths)
    for path in paths:
        if path.rpartition("/")[2] == ".harborignore":
            yield f"{path} is ignored: every file of the folder is handed over"
    for step in steps_of(task.config):
        path = f"{layout.home(step)}trajectory.json"
        if path in task.files:
            yield f"{path} is ignored: agents begin without earlier turns"
    for path in paths:
        if path.rpartition("/")[2] in _SCRIPTS and b"\r\n" in task.files[path].data:
            yield f"{path} has Windows line ends (CRLF), which a shell trips over: save it with LF"
    if task.config.environment.docker_image and f"environment/{DOCKERFILE}" in task.files:
        yield "environment/Dockerfile is ignored: [environment].docker_image names a ready image"
    if task.config.steps:
        unused = [path for path in ("instruction.md",) if path in task.files]
        yield from (f"{path} is ignored: each step has its own" for path in unused)
    named = {f"steps/{step.name}" for step in task.config.steps}
    found = {"/".join(path.split("/")[:2]) for path in paths if path.startswith("steps/")}
    for folder in sorted(found - named):
        yield f"{folder} is ignored: task.toml has no step of that name"
