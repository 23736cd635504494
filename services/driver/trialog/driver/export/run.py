"""What the exports of a run's trials have in common: its settings and its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from trialog.driver.views import Doc
from trialog.proto import runspec
from trialog.proto.ids import event_id, parse_trial_id
from trialog.proto.keys import agent_code
from trialog.proto.runspec import RunSpec
from trialog.proto.tasks.manifest import Manifest, TaskRef


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """A run as it was asked for. ``code`` has the versions that it pinned."""

    run_id: str
    spec: RunSpec
    code: dict[str, str]
    tasks: Manifest = ()

    @property
    def uid(self) -> str:
        """The run's id where a UUID is asked for."""
        return str(event_id(self.run_id, "run"))

    @property
    def agent_version(self) -> str:
        """The version of the agent's code."""
        declared, name = self.spec.versions.agent, agent_code(self.spec)
        return declared or self.code.get(name, "")[:12] or "unknown"

    def task(self, trial_id: str) -> TaskRef | None:
        """Return the task of a trial, None in the reference world."""
        place = runspec.place_of(self.spec, parse_trial_id(trial_id))
        return self.tasks[place] if place < len(self.tasks) else None

    def task_name(self, trial_id: str) -> str:
        """Return the name of a trial's task; in the reference world that of the world."""
        task = self.task(trial_id)
        return task.name if task else runspec.world_of(self.spec, parse_trial_id(trial_id))

    def scores(self, doc: Doc) -> dict[str, float]:
        """Return a trial's scores by criterion; none where checks without weight only say that it
        was tried: the reward is the verifier's alone."""
        rubric = self.spec.resolved_rubric
        counts = rubric.scoring != "check" or any(rubric.weights.values())
        return doc["scores"] if counts else {}

    def task_path(self, name: str) -> str:
        """Return where a task's folder is, as far as the run knows: on the driver's host, or in the
        archive that was sent."""
        given = self.spec.tasks.path if self.spec.tasks else None
        if given is None or PurePosixPath(given).name == name:
            return given or name
        return str(PurePosixPath(given) / name)

    def trial_uid(self, trial_id: str) -> str:
        """Return a trial's id where a UUID is asked for."""
        return str(event_id(self.run_id, f"trial:{trial_id}"))

    def trial_uri(self, trial_id: str) -> str:
        """Return where a trial came from: nothing on this machine."""
        return f"trialog://{self.run_id}/{trial_id}"

    def agent_config(self) -> dict[str, Any]:
        """Return the agent as Harbor's configuration names one."""
        kind, _, where = self.spec.agent.partition(":")
        named = {"import_path": where} if kind == "import" else {"name": self.spec.agent}
        return named | {"kwargs": self.spec.agent_options}

    def environment_config(self) -> dict[str, Any]:
        """Return the sandboxes as Harbor's configuration names them; it knows Docker."""
        if self.spec.provider == "docker":
            return {"type": "docker"}
        return {"import_path": f"trialog.sandbox:{self.spec.provider}"}
