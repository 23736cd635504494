"""Settings of the judge."""

from __future__ import annotations

from pydantic import Field

from trialog.spine.settings import ServiceSettings


class JudgeSettings(ServiceSettings):
    """TRIALOG_JUDGE_URL, what its tokens cost, and what every service has."""

    judge_url: str = Field(pattern=r"^https?://")
    judge_prompt_usd_per_mtok: float = Field(default=3.0, ge=0)
    judge_completion_usd_per_mtok: float = Field(default=15.0, ge=0)
