"""Settings of the trainer."""

from __future__ import annotations

from pydantic import Field

from trialog.spine.settings import ServiceSettings


class TrainerSettings(ServiceSettings):
    """TRIALOG_RAY_ADDRESS and what every service has. Ray reads RAY_AUTH_* by itself."""

    ray_address: str = Field(min_length=1)
    apply_timeout_s: float = Field(default=600.0, gt=0)
