"""A handler that cannot go on now gives its work back, on real NATS and Postgres."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from typing import TypeVar

import pytest
from support import facts as f
from support.waiting import eventually
from support.workers import Shop
from trialog.proto import events as ev
from trialog.spine.bus import Bus
from trialog.spine.consumer import Held, NotNowError
from trialog.spine.log import Claim
from trialog.spine.postgres.log import PostgresLog

T = TypeVar("T")
TRIAL = "s0-p0-n0"


@pytest.fixture
async def shop(log: PostgresLog, bus: Bus, run_id: str) -> Shop:
    shop = Shop(log, bus, run_id)
    await shop.begin()
    return shop


class Turned:
    """A handler that turns its work away once, and notes what it was handed; ``first`` is recorded
    before that."""

    def __init__(self, shop: Shop, pause_s: float, *first: ev.Fact) -> None:
        self.shop, self.pause_s, self.first = shop, pause_s, first
        self.seen: list[tuple[int, int, int]] = []
        self.turned = asyncio.Event()

    async def __call__(self, held: Held) -> None:
        self.seen.append((held.fence, held.failures, held.injected))
        if len(self.seen) == 1:
            if self.first:
                await self.shop.append(*self.first)
            self.turned.set()
            raise NotNowError("the run is paused", self.pause_s)
        await held.finish(f.trajectory(held.name.subject))


async def within(awaitable: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaitable, 30)


async def test_work_that_is_given_back_comes_again_and_nothing_was_counted(shop: Shop) -> None:
    handler = Turned(shop, 0.05)
    async with shop.worker(handler):
        name = await shop.offer(f.trial_requested(TRIAL))
        await eventually(lambda: shop.done(name.key))
        await shop.settled()
    row = await shop.row(name.key)
    assert (row["failures"], row["lost"], row["breakdowns"], row["dead"]) == (0, 0, 0, False)
    assert await shop.events("TrialAttemptFailed", "DeliveryDeadLettered") == []
    assert [failures for _, failures, _ in handler.seen] == [0, 0]


async def test_of_a_paused_run_it_is_free_and_its_message_is_dropped(shop: Shop) -> None:
    """Whoever resumes the run offers it again: the pause may last for hours."""
    handler = Turned(shop, 0.05, ev.RunPaused(0))
    async with shop.worker(handler):
        name = await shop.offer(f.trial_requested(TRIAL))
        await shop.settled(2)
        row = await shop.row(name.key)
        assert (row["incarnation"], row["done"], len(handler.seen)) == (None, False, 1)
        await shop.append(ev.RunResumed(0))
        await shop.publish(shop.message(f.trial_requested(TRIAL)))
        await eventually(lambda: shop.done(name.key))
    assert await shop.events("TrajectoryRecorded") == [f.trajectory(TRIAL)]


async def test_it_is_free_for_another_at_once(shop: Shop) -> None:
    handler = Turned(shop, 60.0)
    async with shop.worker(handler):
        name = await shop.offer(f.trial_requested(TRIAL))
        await within(handler.turned.wait())

        async def free() -> bool:
            return (await shop.row(name.key))["incarnation"] is None

        await eventually(free)
    verdict = await shop.log.commit(Claim(name.key, 60_000))
    assert (verdict.answer, verdict.failures, verdict.lost) == ("ok", 0, 0)


async def test_a_claim_that_was_lost_meanwhile_is_not_given_back(shop: Shop) -> None:
    taken = asyncio.Event()

    async def handler(held: Held) -> None:
        other = PostgresLog(shop.log.database, int.from_bytes(os.urandom(7)))
        await shop.log.database.fetch("select void_incarnations($1)", [shop.log.incarnation])
        assert (await other.commit(Claim(held.name.key, 60_000, held.fence))).ok
        await other.close()
        taken.set()
        raise NotNowError("the run is paused", 60.0)

    async with shop.worker(handler):
        name = await shop.offer(f.trial_requested(TRIAL))
        await within(taken.wait())
    row = await shop.row(name.key)
    assert row["incarnation"] is not None and row["fence"] == 2
