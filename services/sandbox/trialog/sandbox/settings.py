"""Settings of the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from trialog.spine.settings import ServiceSettings


def _patterns(given: object) -> object:
    if not isinstance(given, str):
        return given
    return tuple(pattern for part in given.split(",") if (pattern := part.strip()))


def _paths(given: object) -> object:
    if not isinstance(given, str):
        return given
    return tuple(Path(part) for part in given.split(":") if part)


class SandboxSettings(ServiceSettings):
    """TRIALOG_SANDBOX_DIR, TRIALOG_AGENT_MODULES and what every service has."""

    sandbox_dir: Path
    agent_modules: Annotated[tuple[str, ...], BeforeValidator(_patterns)] = Field(
        default=(),
        description="Modules that agents may be imported from: patterns such as myagents.*, "
        "between commas. An agent's code runs in the worker itself.",
    )
    image_roots: Annotated[tuple[Path, ...], BeforeValidator(_paths)] = Field(
        default=(),
        description="Folders that a run's images (oci:PATH, tar:PATH) may lie in, between colons: "
        "a run's settings are somebody else's, and paths in them are of this host.",
    )
    docker_host: str = Field(
        default="", description="The Docker daemon for runs under the provider docker: unix://PATH."
    )
    orphan_s: float = Field(
        default=120.0,
        ge=0,
        description="How long a task's sandbox outlives its worker, for another to go on in it.",
    )
