"""Where the files of a trial go in Harbor's trial folder. Pure.

Paths are tuples of names. An agent's files keep their names below ``agent/`` and ``artifacts/``,
where none of them can take the place of what we write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from trialog.driver.export.unpack import UnsafeNameError, parts_of
from trialog.proto.tasks.config import Artifact, Step, TaskConfig

Path = tuple[str, ...]

AGENT_LOGS: Final[Path] = ("logs", "agent")
CONVENTION: Final = Artifact(source="/logs/artifacts")
TRAJECTORY: Final = "trajectory.json"
MANIFEST: Final = "manifest.json"
_OURS = {("agent", TRAJECTORY), ("artifacts", MANIFEST)}


def home(step: str | None) -> Path:
    """Return where a try's files are: the trial's folder, or that of a step."""
    return ("steps", step) if step else ()


def placed(home: Path, path: Path) -> Path:
    """Return where a file of an agent goes; one that has the name of ours gets another."""
    if path in _OURS:
        stem, _, suffix = path[-1].rpartition(".")
        path = (*path[:-1], f"{stem}.sandbox.{suffix}")
    return (*home, *path)


def verifier_path(path: Path, steps: Sequence[str]) -> Path:
    """Return where a file of a verifier's record goes; the record of a task with steps has theirs
    below ``steps/NAME/``."""
    if len(path) > 2 and path[0] == "steps" and path[1] in steps:
        return (*path[:2], "verifier", *path[2:])
    return ("verifier", *path)


@dataclass(slots=True)
class _Collected:
    artifact: Artifact
    source: Path
    target: Path
    n_files: int = 0
    is_file: bool = False


@dataclass(slots=True)
class Artifacts:
    """The artifacts of one try: where each file goes, and the manifest of what was found."""

    declared: Sequence[Artifact] = ()
    left_out: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    _known: list[_Collected] = field(default_factory=list[_Collected])

    def __post_init__(self) -> None:
        for artifact in (CONVENTION, *self.declared):
            try:
                source = parts_of(artifact.source.lstrip("/"))
                target = parts_of(artifact.destination) if artifact.destination else source
            except UnsafeNameError as error:
                self.left_out.append((artifact.source, str(error)))
                continue
            if artifact.service in (None, "main") and source not in [k.source for k in self._known]:
                self._known.append(_Collected(artifact, source, target))

    def targets(self, path: Path) -> Iterator[Path]:
        """Yield where a file of the sandbox goes below ``artifacts/``: once for each artifact that
        it belongs to."""
        for one in self._known:
            n = len(one.source)
            if path[:n] != one.source:
                continue
            within = path[n:]
            if within and _excluded(within, one.artifact.exclude):
                continue
            one.n_files += 1
            one.is_file = one.is_file or not within
            yield ("artifacts", *one.target, *within)

    def manifest(self) -> list[dict[str, Any]]:
        """Return the manifest, as Harbor has it. What no agent changed is in no saved state."""
        return [
            {
                "source": one.artifact.source,
                "destination": "/".join(("artifacts", *one.target)),
                "type": "file" if one.is_file else "directory",
                "status": "ok" if one.n_files else self._missing(one),
                "service": None,
                "exclude": list(one.artifact.exclude),
            }
            for one in self._known
        ]

    def _missing(self, one: _Collected) -> str:
        return "empty" if one.artifact is CONVENTION else "failed"


def artifacts_of(config: TaskConfig | None, step: str | None) -> Artifacts:
    """Return the artifacts of a try: the task's, and of a step its own."""
    if config is None:
        return Artifacts()
    own: Step | None = next((one for one in config.steps if one.name == step), None)
    return Artifacts([*config.artifacts, *(own.artifacts if own else ())])


def _excluded(path: Path, patterns: Sequence[str]) -> bool:
    """Whether tar would leave a file out: a pattern names it, a folder of it, or all below."""
    names = {"/".join(path[: n + 1]) for n in range(len(path))} | set(path)
    return any(fnmatchcase(name, pattern.rstrip("/")) for pattern in patterns for name in names)
