"""The judge client's in-memory twin: replies are made in the process, and counted."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from trialog.judge.clients import JudgeReply, reply_of
from trialog.judge.errors import JudgeRefusedError, JudgeTimeoutError
from trialog.judge.replies import Prices
from trialog.judge.standin.answers import answer_to
from trialog.judge.standin.reference import InvalidRequestError

Respond = Callable[[dict[str, Any]], bytes]


class MemoryJudgeClient:
    """A JudgeClient over a function from request to reply bytes.

    The function may raise a JudgeCallError to play an outage; InvalidRequestError is a refusal.
    """

    def __init__(self, respond: Respond = answer_to, *, prices: Prices | None = None) -> None:
        self._respond = respond
        self._prices = prices or Prices()
        self.calls: Counter[str] = Counter()
        """Calls made, by idempotency key."""

    async def call(
        self, request: dict[str, Any], *, idempotency_key: str, latency_s: float, timeout_s: float
    ) -> JudgeReply:
        """See JudgeClient."""
        # Through JSON, as on the wire: the function sees what a server would.
        sent = json.loads(json.dumps(request, sort_keys=True, allow_nan=False))
        try:
            raw = self._respond(sent)
        except InvalidRequestError as error:
            raise JudgeRefusedError(f"the judge answered 400: {error}", 400) from error
        self.calls[idempotency_key] += 1
        await asyncio.sleep(min(latency_s, timeout_s))
        if latency_s >= timeout_s:
            raise JudgeTimeoutError(f"no reply from the judge within {timeout_s:g} s")
        return reply_of(request, raw, prices=self._prices, latency_ms=latency_s * 1000)

    async def close(self) -> None:
        """See JudgeClient."""
