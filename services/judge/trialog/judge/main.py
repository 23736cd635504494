"""``python -m trialog.judge``: the composition root of the judge."""

from __future__ import annotations

from trialog.judge import code
from trialog.judge.calls import Calls
from trialog.judge.clients import HttpJudgeClient
from trialog.judge.handlers import Handlers
from trialog.judge.replies import Prices
from trialog.judge.settings import JudgeSettings
from trialog.spine import service
from trialog.spine.service import Context
from trialog.spine.worker import work


async def run(context: Context) -> None:
    """Judge until told to stop."""
    settings = context.settings
    assert isinstance(settings, JudgeSettings)
    prices = Prices(settings.judge_prompt_usd_per_mtok, settings.judge_completion_usd_per_mtok)
    client = HttpJudgeClient(settings.judge_url, prices=prices)
    calls = Calls(context.log, context.blobs, client, prices)
    try:
        handlers = Handlers(calls, context.blobs)
        await work(context, {"judge": handlers.on_trial_verified})
    finally:
        await calls.close()
        await client.close()


def main() -> None:
    """Start the judge."""
    service.serve("judge", JudgeSettings, run, code.versions)
