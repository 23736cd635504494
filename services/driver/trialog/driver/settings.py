"""Settings of the driver."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

from pydantic import Field, SecretStr, field_validator, model_validator

from trialog.spine.settings import ServiceSettings


class DriverSettings(ServiceSettings):
    """TRIALOG_API_* and what every service has."""

    api_host: str = "127.0.0.1"
    api_port: int = Field(default=8321, ge=0, le=65_535)
    api_key: SecretStr | None = None
    max_body_bytes: int = Field(default=1_000_000, ge=1_000)
    partition: int = Field(default=0, ge=0)
    task_roots: str = Field(
        default="", description="Folders, with : between, below which tasks.path may be."
    )
    max_archive_bytes: int = Field(
        default=2_000_000_000, ge=10_000, description="Of an upload of tasks, unpacked."
    )

    @field_validator("task_roots")
    @classmethod
    def _absolute(cls, given: str) -> str:
        for root in filter(None, given.split(":")):
            if not root.startswith("/"):
                raise ValueError(f"TRIALOG_TASK_ROOTS: {root!r} must be absolute")
        return given

    @property
    def task_folders(self) -> tuple[Path, ...]:
        """The roots, each as a path."""
        return tuple(Path(root) for root in self.task_roots.split(":") if root)

    @model_validator(mode="after")
    def _no_open_door(self) -> DriverSettings:
        if self.api_key is None and not _is_loopback(self.api_host):
            raise ValueError(
                f"TRIALOG_API_HOST {self.api_host} can be reached from outside: "
                "set TRIALOG_API_KEY, or bind to 127.0.0.1"
            )
        return self


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
