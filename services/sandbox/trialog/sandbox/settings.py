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


class SandboxSettings(ServiceSettings):
    """TRIALOG_SANDBOX_DIR, TRIALOG_AGENT_MODULES and what every service has."""

    sandbox_dir: Path
    agent_modules: Annotated[tuple[str, ...], BeforeValidator(_patterns)] = Field(
        default=(),
        description="Modules that agents may be imported from: patterns such as myagents.*, "
        "between commas. An agent's code runs in the worker itself.",
    )
