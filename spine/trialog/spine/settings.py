"""Settings that every service shares, read from TRIALOG_* variables by its main.py alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr

_PREFIX = "TRIALOG_"


class ServiceSettings(BaseModel):
    """Where the shared parts are, and how this process behaves."""

    model_config = ConfigDict(frozen=True)

    database_url: SecretStr
    nats_url: SecretStr
    blob_dir: Path
    pool: str = Field(default="default", pattern=r"^[a-z0-9-]{1,32}$")
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=0, ge=0, le=65_535, description="/livez, /readyz, /metrics.")
    log_level: str = "INFO"
    concurrency: int = Field(default=8, ge=1, le=1024, description="Pieces of work at a time.")
    lease_ms: int = Field(default=30_000, ge=300, le=3_600_000)
    grace_s: float = Field(default=8.0, ge=0, description="Time to end work after SIGTERM.")

    @classmethod
    def from_environment(cls) -> Self:
        """Read each field from the variable of its name; raises pydantic's ValidationError.

        Plain pydantic: its settings package takes a fifth of a service's start to import.
        """
        names = {name: _PREFIX + name.upper() for name in cls.model_fields}
        found = {name: os.environ[key] for name, key in names.items() if os.environ.get(key)}
        return cls.model_validate(found)
