"""Settings of the sandbox."""

from __future__ import annotations

from pathlib import Path

from trialog.spine.settings import ServiceSettings


class SandboxSettings(ServiceSettings):
    """TRIALOG_SANDBOX_DIR and what every service has."""

    sandbox_dir: Path
