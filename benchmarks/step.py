"""Overhead of one training step on the warm Ray actor. Target: 50 ms.

Starts the embedded stack's Ray head, connects a RayHost and applies 200 steps of 102 trials each
(and 50 of 1,000) in a row. Timed is the host's whole ``apply``: the call to the actor, the learner,
and the weights' way back. Prints one JSON line per figure.
"""

from __future__ import annotations

import asyncio
import json
import os
import time

from trialog.cli.stack import Stack, StackOptions
from trialog.proto.canonical import bytes_digest
from trialog.proto.identity import step_key
from trialog.proto.policy import initial_weights
from trialog.trainer.batch import BatchItem
from trialog.trainer.host import RayHost
from trialog.trainer.policy import StepOrder

LIMIT_S = 120.0
RUN = "r-abcdefghijklmnop"
LEARNER = {"name": "bandit", "lr": 2.0}
FIRST = initial_weights(3)


def figure(name: str, value: float, unit: str, how: str) -> None:
    """Print one figure as a JSON line."""
    print(json.dumps({"figure": name, "value": round(value, 3), "unit": unit, "how": how}))


def batch_of(step: int, n_trials: int) -> list[BatchItem]:
    """Return a step's batch: every third trial without the secret, rewards as in real runs."""
    items = [
        BatchItem(
            trial_id=f"s{step}-p{n // 2}-n{n % 2}",
            world_id=f"w{n // 2 % 3}",
            found_doc=None if n % 3 == 0 else n % 8,
            reward=round(0.25 + n % 17 / 8, 3),
            digest=f"{n:064x}",
        )
        for n in range(n_trials)
    ]
    return sorted(items, key=lambda item: item.trial_id)


def order_of(step: int, prior: bytes, batch: list[BatchItem]) -> StepOrder:
    """Return the order of a step, keyed as the driver does."""
    prior_digest, judgments = bytes_digest(prior), [item.digest for item in batch]
    key = step_key(
        code="", step=step, prior_digest=prior_digest, judgments=judgments, learner=LEARNER
    )
    return StepOrder(step, key, prior_digest, LEARNER, tuple(batch))


async def first(_: str) -> bytes:
    """Load the only checkpoint that is ever asked for."""
    return FIRST


async def timed(host: RayHost, n_steps: int, n_trials: int) -> list[float]:
    """Apply steps one after another; return each one's time in ms, in ascending order."""
    weights, times_ms = FIRST, list[float]()
    for step in range(n_steps + 1):
        order = order_of(step, weights, batch_of(step, n_trials))
        start = time.perf_counter()
        applied = await host.apply(RUN, order, first, timeout_s=LIMIT_S)
        times_ms.append((time.perf_counter() - start) * 1000)
        weights = applied.weights
    await host.retire(RUN, timeout_s=LIMIT_S)
    return sorted(times_ms[1:])  # the first one started the actor


async def measure() -> None:
    """Measure on a warm actor, then the ways back to one."""
    async with Stack(StackOptions(with_services=False)) as stack:
        os.environ.update(stack.ray_env)
        address = stack.ray_env["TRIALOG_RAY_ADDRESS"]
        host = RayHost(address)
        await host.connect(timeout_s=LIMIT_S)
        for n_steps, n_trials in ((200, 102), (50, 1000)):
            times_ms = await timed(host, n_steps, n_trials)
            how = f"RayHost.apply, {n_steps} steps of {n_trials} trials in a row, warm actor"
            for percent in (50, 99):
                value = times_ms[min(len(times_ms) - 1, len(times_ms) * percent // 100)]
                figure(f"train_step_{n_trials}_trials_p{percent}", value, "ms", how)
        order = order_of(0, FIRST, batch_of(0, 102))
        start = time.perf_counter()
        await host.apply(RUN, order, first, timeout_s=LIMIT_S)
        how = "RayHost.apply with no actor yet: make it, send the checkpoint, apply"
        figure("train_step_cold_actor", (time.perf_counter() - start) * 1000, "ms", how)
        await host.close()

        other = RayHost(address)
        start = time.perf_counter()
        await other.apply(RUN, order, first, timeout_s=LIMIT_S)
        how = "new RayHost: connect, find the actor, repeat a step that it keeps"
        figure("train_step_after_reconnect", (time.perf_counter() - start) * 1000, "ms", how)
        await other.retire(RUN, timeout_s=LIMIT_S)
        await other.close()


if __name__ == "__main__":
    asyncio.run(measure())
