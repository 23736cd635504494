"""Whether a task can run as a run asks for it: said before anything runs. Pure.

What no sandbox of ours can do is refused with what is wrong and what mends it, rather than run
without it: a task without its database would grade every agent 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from trialog.proto.agents import REFERENCE_AGENTS, TASK_AGENTS
from trialog.proto.tasks.config import Environment, TaskConfig
from trialog.proto.tasks.context import faults
from trialog.proto.tasks.dockerfile import (
    UnknownImageError,
    bases,
    needs_buildkit,
    plain_name,
    unbuildable,
)
from trialog.proto.tasks.files import TaskProblem
from trialog.proto.tasks.layout import COMPOSE, DOCKERFILE, Layout
from trialog.proto.tasks.legacy import named
from trialog.proto.tasks.parse import env_tables, environments, networks
from trialog.proto.tasks.task import Task, steps_of
from trialog.proto.tasks.variables import unset

_MAIN = "main"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run says that decides which tasks it can be of, named as in RunSpec.

    ``agent`` and ``images`` None: nobody has said yet; what they would decide is a warning.
    """

    provider: str = "bubblewrap"
    network: str = "none"
    images: Mapping[str, str] | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a task runs. If not: why, and what to do about it."""

    task: str
    runs: bool
    reason: str = ""
    mend: str = ""
    warnings: tuple[str, ...] = ()


class _Finding(NamedTuple):
    reason: str
    mend: str


def check(task: Task, settings: Settings) -> Verdict:
    """Return whether a task can run under these settings."""
    warnings = list(task.warnings)
    findings = [
        *_machines(task.config),
        *_services(task.config, task.layout),
        *_networks(task.config, settings, warnings),
        *_variables(task.config, settings),
        *_images(task, settings, warnings),
        *_agents(task, settings, warnings),
    ]
    return Verdict(
        task.name,
        not findings,
        "; ".join(dict.fromkeys(finding.reason for finding in findings)),
        "; ".join(dict.fromkeys(finding.mend for finding in findings if finding.mend)),
        tuple(warnings),
    )


def verdict_on(name: str, read: Task | TaskProblem, settings: Settings) -> Verdict:
    """Return the verdict on a task as it was read: one that cannot be read does not run."""
    if isinstance(read, TaskProblem):
        return Verdict(name, False, str(read), read.mend)
    return check(read, settings)


def _machines(config: TaskConfig) -> Iterator[_Finding]:
    for place, environment in environments(config):
        if environment.os != "linux":
            what = f"{named(place, 'os')} is {environment.os}"
            yield _Finding(what, "only Linux tasks can run")
        if environment.tpu is not None:
            yield _Finding(f"{named(place, 'tpu')} asks for a TPU", "no sandbox has one")
        if environment.gpus:
            what = f"{named(place, 'gpus')} asks for {environment.gpus} GPU(s)"
            yield _Finding(what, "no sandbox has one; set gpus = 0 if the task does without")


def _services(config: TaskConfig, layout: Layout) -> Iterator[_Finding]:
    homes = [layout.home(step) for step in config.steps]
    for folder in ("environment", "tests", *(f"{home}tests" for home in homes)):
        if f"{folder}/{COMPOSE}" in layout.paths:
            what = f"{folder}/{COMPOSE} starts services beside the task's"
            yield _Finding(what, "start them in the one container, as from a healthcheck")
    for place, holder in [("", config), *((f"steps[{n}]", s) for n, s in enumerate(config.steps))]:
        others = [hook.service for hook in holder.verifier.collect]
        others += [artifact.service or _MAIN for artifact in holder.artifacts]
        for service in sorted(set(others) - {_MAIN}):
            where = named(place, "artifacts or collect") if place else "artifacts or collect"
            what = f"{where} names the service {service}"
            yield _Finding(what, f"only the service {_MAIN} is there")


def _networks(config: TaskConfig, settings: Settings, warnings: list[str]) -> Iterator[_Finding]:
    for place, table in networks(config):
        key = named(place, "network_mode")
        if table.network_mode == "allowlist":
            what = f"{key} is allowlist, which no provider enforces yet"
            yield _Finding(what, f"set {key} to no-network or public")
        if table.network_mode == "public" and settings.network != "public":
            what = f"{key} is public, and the run allows no network"
            yield _Finding(what, f"give the run network: public, or set {key} to no-network")
        elif table.network_mode == "public" and settings.provider == "bubblewrap":
            what = f"{key} is public, and bubblewrap sandboxes have no network"
            yield _Finding(what, "set provider to docker")
    of_the_trial = config.agent.network_mode or config.environment.network_mode or "no-network"
    for n, step in enumerate(config.steps):
        if step.agent.network_mode not in (None, of_the_trial):
            key = named(f"steps[{n}].agent", "network_mode")
            what = f"{key} is {step.agent.network_mode}, and the sandbox of all steps has another"
            yield _Finding(what, f"leave it out: the task's is {of_the_trial}")
    if config.environment.network_mode is None:
        warnings.append(
            "[environment].network_mode is not given: the task gets no network "
            "(the format's own default is public)"
        )


def _variables(config: TaskConfig, settings: Settings) -> Iterator[_Finding]:
    for place, env in env_tables(config):
        if place == "solution.env" and settings.agent != "oracle":
            continue
        for name, host in unset(env):
            what = f"{named(place, name)} asks for the host's variable {host}, and gets none of it"
            yield _Finding(what, f'give a default, "${{{host}:-VALUE}}", or the value itself')


def _images(task: Task, settings: Settings, warnings: list[str]) -> Iterator[_Finding]:
    if settings.provider not in ("bubblewrap", "docker"):
        what = f"provider {settings.provider} runs no commands, and tasks are made of them"
        yield _Finding(what, "set provider to bubblewrap or docker")
        return
    wanted: dict[str, None] = {}
    for place, folder, environment in _built(task):
        try:
            wanted |= dict.fromkeys(_named_by(task, folder, environment))
        except UnknownImageError as error:
            yield _Finding(f"{place}: {error}", "name the image, or give the argument a default")
    for place, folder, environment in _built(task):
        for fault in _faults(task, folder, environment, settings):
            yield _Finding(f"{place}: {fault}", "mend the line, or put the file there")
    if settings.provider == "docker":
        # A daemon has images of its own, and says itself which it lacks.
        for place, folder, environment in _built(task):
            for instruction in _refused_by_daemon(task, folder, environment, settings):
                what = f"{place}: {instruction} is not built here"
                yield _Finding(what, "put it into plain COPY and RUN lines, or allow the network")
        return
    for place, folder, environment in _built(task):
        for instruction in _beyond(task, folder, environment):
            what = f"{place}: {instruction} is not built without a Docker daemon"
            mend = "put the file beside the Dockerfile and COPY it"
            # Mounts need BuildKit, which no provider has.
            other = "" if instruction.startswith("RUN") else ", or provider: docker"
            yield _Finding(what, mend + other)
    known = {plain_name(image) for image in settings.images or {}}
    missing = [image for image in wanted if plain_name(image) not in known]
    for image in missing:
        what = f"the image {image} is not among the run's images"
        mend = f'give the run images: {{"{image}": "oci:PATH" or "tar:PATH"}}'
        if settings.images is None:
            warnings.append(f"a run with provider bubblewrap must say where {image} is: {mend}")
        else:
            yield _Finding(what, f"{mend}, or provider: docker")


def _built(task: Task) -> Iterator[tuple[str, str, Environment]]:
    """Yield each image that is built for a task: its file, its folder and its settings."""
    seen: set[str] = set()
    yield f"environment/{DOCKERFILE}", "environment", task.config.environment
    for step in steps_of(task.config):
        image = task.layout.verifier_image(step)
        if image is None or not image.bundled or image.context in seen:
            continue
        seen.add(image.context)
        environment = image.environment.model_copy(update={"docker_image": image.docker_image})
        yield f"{image.context}/{DOCKERFILE}", image.context, environment


def _named_by(task: Task, folder: str, environment: Environment) -> list[str]:
    if environment.docker_image:
        return [environment.docker_image]
    entry = task.files.get(f"{folder}/{DOCKERFILE}")
    if entry is None:
        return []  # a compose file is there instead, which is refused by itself
    try:
        return bases(entry.data.decode())
    except UnicodeDecodeError:
        raise UnknownImageError("is not UTF-8") from None


def _beyond(task: Task, folder: str, environment: Environment) -> list[str]:
    entry = task.files.get(f"{folder}/{DOCKERFILE}")
    if environment.docker_image or entry is None:
        return []
    return unbuildable(entry.data.decode(errors="replace"))


def _refused_by_daemon(
    task: Task, folder: str, environment: Environment, settings: Settings
) -> list[str]:
    """What the daemon's plain builder does not know, and what needs a network the run has not."""
    entry = task.files.get(f"{folder}/{DOCKERFILE}")
    if environment.docker_image or entry is None:
        return []
    found = needs_buildkit(text := entry.data.decode(errors="replace"))
    if settings.network != "public":
        found += [one for one in unbuildable(text) if one.endswith("of an address")]
    return found


def _faults(task: Task, folder: str, environment: Environment, settings: Settings) -> list[str]:
    entry = task.files.get(f"{folder}/{DOCKERFILE}")
    if environment.docker_image or entry is None:
        return []
    home = f"{folder}/"
    beside = {
        path.removeprefix(home): one for path, one in task.files.items() if path.startswith(home)
    }
    text = entry.data.decode(errors="replace")
    return faults(text, beside, wildcards=settings.provider == "bubblewrap")


def _agents(task: Task, settings: Settings, warnings: list[str]) -> Iterator[_Finding]:
    if settings.agent in REFERENCE_AGENTS:
        what = f"agent {settings.agent} knows the reference world only"
        yield _Finding(what, f"set agent to {TASK_AGENTS}")
    for step in steps_of(task.config):
        if task.layout.solution(step) is not None:
            continue
        what = f"{task.layout.home(step)}solution/solve.sh is missing"
        if settings.agent == "oracle":
            yield _Finding(f"{what}, and the oracle has nothing else", "write it, or set agent")
        elif settings.agent is None:
            warnings.append(f"{what}: the agent oracle cannot play this task")
