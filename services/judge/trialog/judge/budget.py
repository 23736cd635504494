"""What a judge call may cost at worst, and what to do when its run's budget has no room for it.

The claim itself says whether there is room (spine/budget.py). Where there is none, calls that are
out may yet cost less than they might: that is waited for. Where not even that would help, the run
is paused, with a reason that names the limit; its judgments are given back, and nothing is counted.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import Any

from trialog.judge.replies import Prices
from trialog.proto import events as ev
from trialog.spine import telemetry
from trialog.spine.budget import MICRO, Amount, Budget, Cost, cost_of
from trialog.spine.consumer import Held, NotNowError
from trialog.spine.log import Append, EventLog

_LONGEST_WAIT_S = 0.5
_PATIENCE_S = 5.0
_AGAIN_S = 2.0
_DO = "resume with a higher budget"


def worst_cost(request: dict[str, Any], max_tokens: int, prices: Prices) -> Cost:
    """Return the most that a call may cost.

    A token is at least one byte of the text that is sent; no reply is longer than ``max_tokens``.
    """
    prompt = len(json.dumps(request))
    money = prompt * prices.prompt_usd_per_mtok + max_tokens * prices.completion_usd_per_mtok
    return cost_of(prompt + max_tokens, math.ceil(money))


def exhausted(budget: Budget, worst: Cost) -> str | None:
    """Return why a call has no room even if all that is out came to cost nothing, else None."""
    after = budget.spent.plus(Amount(1, *worst))
    limits, spent = budget.limits, budget.spent
    if limits.calls is not None and after.calls > limits.calls:
        return f"budget.judge_calls: {spent.calls} of {limits.calls} are spent; {_DO}"
    if limits.tokens is not None and after.tokens > limits.tokens:
        what = f"{spent.tokens} of {limits.tokens} are spent and the next call may take "
        return f"budget.tokens: {what}{worst.tokens}; {_DO}"
    if limits.microusd is not None and after.microusd > limits.microusd:
        what = f"{_usd(spent.microusd)} of {_usd(limits.microusd)} is spent and the next call may "
        return f"budget.usd: {what}cost {_usd(worst.microusd)}; {_DO}"
    return None


def _usd(microusd: int) -> str:
    return f"{microusd / MICRO:.6f}".rstrip("0").rstrip(".")


class Room:
    """Waits for room in budgets, and pauses runs that have come to an end of theirs."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def wait(self, held: Held, worst: Cost, wait_s: float) -> float:
        """Wait a moment for calls that are out; return how long to wait the next time.

        Raises NotNowError when the run is paused (or was, by this very call), and when a good part
        of the judgment's own time has passed: waiting must not count as a failed attempt.
        """
        budget = await self._log.budget(held.run.run_id)
        assert budget is not None, "what is unfunded has a budget"
        if budget.run_state != "running":
            raise NotNowError("the run is paused or has ended")
        if reason := exhausted(budget, worst):
            await self._pause(held, budget.pauses, reason)
            raise NotNowError(reason)
        patience_s = min(_PATIENCE_S, held.run.spec.timeouts.judge_s / 4)
        if time.monotonic() - held.claimed_at > patience_s:
            raise NotNowError("calls that are out have reserved what is left", _AGAIN_S)
        await asyncio.sleep(wait_s)
        return min(wait_s * 2, _LONGEST_WAIT_S)

    async def _pause(self, held: Held, n: int, reason: str) -> None:
        """Pause the run; another judge may have been first, and then its reason stands."""
        verdict = await self._log.commit(Append([held.event(ev.RunPaused(n, reason))]))
        if verdict.ok:
            telemetry.logger().warning("run paused: its budget is reached", reason=reason)
