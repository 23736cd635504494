"""What a task is by content, one digest for each of its readers. Pure.

Each digest is of everything its reader can see, and of nothing else: not of times, owners, or the
order on a disk, nor of how task.toml spells a setting.
"""

from __future__ import annotations

from typing import Any

from trialog.proto.canonical import bytes_digest, digest
from trialog.proto.tasks.config import Step, TaskConfig
from trialog.proto.tasks.files import Files
from trialog.proto.tasks.manifest import TaskRef
from trialog.proto.tasks.task import Task, instruction_of, steps_of

_FORM = "task-1"


def ref_of(task: Task, blob: str) -> TaskRef:
    """Return a task as a manifest names it; ``blob`` is the digest of its packed folder."""
    verifier = _digest("verifier", _verifier(task))
    agent = _agent(task)
    if any(step.min_reward is not None for step in task.config.steps):
        # A gate decides whether there is a next step: then the grader is part of what is done.
        agent["gated_by"] = verifier
    return TaskRef(
        name=task.name,
        blob=blob,
        environment=_digest("environment", _environment(task)),
        agent=_digest("agent", agent),
        solution=_digest("solution", _solution(task)),
        verifier=verifier,
    )


def _digest(part: str, content: dict[str, Any]) -> str:
    return digest({"form": _FORM, "part": part} | content)


def _environment(task: Task) -> dict[str, Any]:
    # How long a build may take changes nothing about what comes out of it.
    table = task.config.environment.model_dump(exclude={"build_timeout_sec"})
    return {"environment": table, "files": tree(task.files, "environment")}


def _agent(task: Task) -> dict[str, Any]:
    """What happens up to the state that is graded: collect hooks run before it is kept."""
    config, layout = task.config, task.layout

    def told(step: Step | None) -> dict[str, Any]:
        text = instruction_of(task.files, layout.instruction(step))
        verifier = (step or config).verifier
        about: dict[str, Any] = {
            "instruction": text,
            "collect": [hook.model_dump() for hook in verifier.collect],
        }
        if step is None:
            return about
        return about | {
            "name": step.name,
            "agent": step.agent.model_dump(),
            "healthcheck": step.healthcheck and step.healthcheck.model_dump(),
            "workdir": tree(task.files, f"{layout.home(step)}workdir"),
        }

    collect = [hook.model_dump() for hook in config.verifier.collect]
    return {
        "agent": config.agent.model_dump(),
        "collect": collect,
        "steps": [told(step) for step in steps_of(config)],
    }


def _solution(task: Task) -> dict[str, Any]:
    trees = _trees(task, "solution")
    return {"solution": task.config.solution.model_dump(), "files": trees}


def _verifier(task: Task) -> dict[str, Any]:
    config = task.config
    steps = [
        {
            "name": step.name,
            "min_reward": step.min_reward,
            "artifacts": [one.model_dump() for one in step.artifacts],
            "verifier": _graded(step),
        }
        for step in config.steps
    ]
    return {
        "verifier": _graded(config),
        "artifacts": [one.model_dump() for one in config.artifacts],
        "strategy": (config.multi_step_reward_strategy or "mean") if config.steps else None,
        "steps": steps,
        "files": _trees(task, "tests"),
    }


def _graded(holder: TaskConfig | Step) -> dict[str, Any]:
    verifier = holder.verifier
    table = verifier.model_dump(exclude={"collect", "environment"})
    environment = verifier.environment
    return table | {
        "environment": environment and environment.model_dump(exclude={"build_timeout_sec"})
    }


def _trees(task: Task, folder: str) -> dict[str, Any]:
    """Return a folder of the task's, and those of that name of its steps."""
    places = dict.fromkeys(task.layout.home(step) for step in (None, *task.config.steps))
    return {place: tree(task.files, f"{place}{folder}") for place in places}


def tree(files: Files, folder: str) -> dict[str, list[str]]:
    """Return what is below a folder, by path in it: files by digest, links by what they say."""
    found: dict[str, list[str]] = {}
    for path, entry in files.items():
        if not path.startswith(f"{folder}/"):
            continue
        match entry.kind:
            case "file":
                mode = "755" if entry.executable else "644"
                said = ["file", mode, bytes_digest(entry.data)]
            case "symlink":
                said = ["symlink", entry.target]
            case "dir":
                said = ["dir"]
        found[path.removeprefix(f"{folder}/")] = said
    return found
