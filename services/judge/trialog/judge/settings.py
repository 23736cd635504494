"""Settings of the judge."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trialog.spine.settings import ServiceSettings

Price = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class JudgeSettings(ServiceSettings):
    """TRIALOG_JUDGE_URL, what its tokens cost, and what every service has."""

    judge_url: str = Field(pattern=r"^https?://")
    judge_prompt_usd_per_mtok: Price = 3.0
    judge_completion_usd_per_mtok: Price = 15.0
