"""What workers survive: a bus that is wiped or restarted, a Postgres that restarts under load."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator

import pytest
from support import facts as f
from support.stack import StackThread
from support.waiting import eventually
from support.workers import Shop
from trialog.proto import events as ev
from trialog.spine.bus import DOWN, STREAM, Bus
from trialog.spine.consumer import Held
from trialog.spine.database import DOWN as DATABASE_DOWN
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.presence import Presence, new_incarnation

SIZE = {"n_steps": 1, "prompts_per_step": 1000, "n_samples": 1}


@pytest.fixture
async def shop(log: PostgresLog, bus: Bus, run_id: str) -> Shop:
    shop = Shop(log, bus, run_id)
    await shop.begin(**SIZE)
    return shop


async def finish(held: Held) -> None:
    await held.finish(f.trajectory(held.name.subject))


async def restart(stack: StackThread, name: str, wipe: bool = False) -> None:
    await asyncio.to_thread(functools.partial(stack.restart, name, wipe=wipe))


async def delete(shop: Shop, stack: StackThread) -> None:
    await shop.bus.jetstream.delete_stream(STREAM)


async def purge(shop: Shop, stack: StackThread) -> None:
    await shop.bus.jetstream.purge_stream(STREAM)


async def delete_consumer(shop: Shop, stack: StackThread) -> None:
    await shop.bus.jetstream.delete_consumer(STREAM, f"trial-{shop.pool}")


async def restart_nats(shop: Shop, stack: StackThread) -> None:
    await restart(stack, "nats")


async def wipe_nats(shop: Shop, stack: StackThread) -> None:
    await restart(stack, "nats", wipe=True)


@pytest.mark.parametrize(
    "harm",
    [delete, purge, delete_consumer, restart_nats, wipe_nats],
    ids=lambda harm: harm.__name__,
)
async def test_new_work_flows_again_whatever_befell_the_bus(
    shop: Shop, stack: StackThread, harm
) -> None:
    """I10. What is in hand meanwhile is finished."""
    go_on = asyncio.Event()

    async def handler(held: Held) -> None:
        if held.name.subject == "s0-p1-n0":
            await go_on.wait()
        await finish(held)

    async with shop.worker(handler):
        first = await shop.offer(f.trial_requested("s0-p0-n0"))
        await eventually(lambda: shop.done(first.key))
        second = await shop.offer(f.trial_requested("s0-p1-n0"))

        async def in_hand() -> bool:
            return (await shop.row(second.key))["incarnation"] is not None

        await eventually(in_hand)
        await harm(shop, stack)
        go_on.set()
        await eventually(lambda: shop.done(second.key))
        third = await shop.offer(f.trial_requested("s0-p2-n0"))
        await eventually(lambda: shop.done(third.key), timeout_s=15)
    assert len(await shop.events("TrajectoryRecorded")) == 3
    assert await shop.events("TrialAttemptFailed") == []


@contextlib.asynccontextmanager
async def kept(presence: Presence) -> AsyncGenerator[None]:
    await presence.join()
    keeping = asyncio.create_task(presence.keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await presence.leave()


async def test_a_restart_of_postgres_under_load_loses_nothing(
    shop: Shop, stack: StackThread
) -> None:
    """Claims live through it, under the same incarnation, and nobody's attempt failed."""
    log = PostgresLog(shop.log.database, new_incarnation())
    lives: list[int] = []
    presence = Presence(stack.database_url, "test", log.incarnation, lives.append)
    steady = Shop(shop.log, shop.bus, shop.run_id)
    began, go_on = asyncio.Event(), asyncio.Event()
    trials = [f"s0-p{n}-n0" for n in range(400)]

    async def hold(held: Held) -> None:
        began.set()
        await go_on.wait()
        await finish(held)

    async def all_done() -> bool:
        with contextlib.suppress(*DATABASE_DOWN):
            if len(await shop.events("TrajectoryRecorded")) == len(trials):
                return True
            await sweep(shop)
        return False

    async with (
        kept(presence),
        steady.worker(hold, log=log),
        shop.worker(finish, log=log, concurrency=32, lease_ms=1500),
    ):
        await steady.offer(f.trial_requested(trials[0]))
        await asyncio.wait_for(began.wait(), 20)
        offering = asyncio.create_task(offer_all(shop, trials[1:]))
        await eventually(lambda: shop.events("TrajectoryRecorded"))
        await restart(stack, "postgres")
        await offering
        go_on.set()
        await eventually(all_done)
        assert (lives, presence.incarnation) == ([], log.incarnation)
    recorded: list[ev.Fact] = await shop.events("TrajectoryRecorded")
    assert sorted(getattr(fact, "trial_id", "") for fact in recorded) == sorted(trials)
    # A claim whose answer got lost is nobody's until its lease ends; nothing else failed.
    failures: list[ev.Fact] = await shop.events("TrialAttemptFailed")
    assert {getattr(failure, "failure", "") for failure in failures} <= {"lost"}
    assert trials[0] not in {getattr(failure, "subject", "") for failure in failures}
    await log.close()


async def offer_all(shop: Shop, trials: list[str]) -> None:
    for trial in trials:
        await shop.offer(f.trial_requested(trial))


async def sweep(shop: Shop) -> None:
    """Offer again what is open and free, as the sweeper does."""
    with contextlib.suppress(*DATABASE_DOWN, *DOWN):
        for work in await shop.log.open_work(0, 0, 100_000):
            if work.run_id == shop.run_id and work.kind == "trial" and work.expired:
                subject = work.key.split("/")[1]
                await shop.publish(shop.message(f.trial_requested(subject)))
