"""The consumer on real NATS and Postgres: claim, work, record, acknowledge; and what goes wrong."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable
from typing import TypeVar

import pytest
from support import facts as f
from support.waiting import eventually
from support.workers import Shop
from trialog.proto import events as ev
from trialog.spine.bus import Bus
from trialog.spine.consumer import AttemptFailedError, Held
from trialog.spine.log import Append, Claim, Finish, new_event
from trialog.spine.postgres import queries
from trialog.spine.postgres.log import PostgresLog
from trialog.spine.presence import new_incarnation

T = TypeVar("T")
TRIAL = "s0-p0-n0"


@pytest.fixture
async def shop(log: PostgresLog, bus: Bus, run_id: str) -> Shop:
    shop = Shop(log, bus, run_id)
    await shop.begin()
    return shop


class Hand:
    """A handler that says when it began and how it ended, and goes on when told."""

    def __init__(self) -> None:
        self.began: asyncio.Queue[Held] = asyncio.Queue()
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.calls = 0

    async def __call__(self, held: Held) -> None:
        self.calls += 1
        self.began.put_nowait(held)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        await held.finish(f.trajectory(held.name.subject))


async def within(awaitable: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaitable, 20)


async def test_a_message_becomes_a_claim_the_claim_a_fact_and_then_it_is_acknowledged(
    shop: Shop,
) -> None:
    hand = Hand()
    async with shop.worker(hand):
        name = await shop.offer(f.trial_requested(TRIAL))
        held = await within(hand.began.get())
        assert (held.name, held.fence, held.failures) == (name, 1, 0)
        assert held.origin == f.trial_requested(TRIAL)
        assert held.run.spec.n_steps == 2
        assert not await shop.done(name.key)
        hand.go_on.set()
        await shop.settled()
    assert await shop.done(name.key)
    assert await shop.events("TrajectoryRecorded") == [f.trajectory(TRIAL)]


async def test_a_message_that_comes_again_after_the_work_is_done_is_dropped(shop: Shop) -> None:
    hand = Hand()
    hand.go_on.set()
    async with shop.worker(hand):
        await shop.offer(f.trial_requested(TRIAL))
        await shop.settled()
        await shop.publish(*[shop.message(f.trial_requested(TRIAL))] * 3)
        await shop.settled(4)
    assert hand.calls == 1


async def test_messages_of_held_work_are_dropped_while_it_is_worked_on(shop: Shop) -> None:
    hand = Hand()
    async with shop.worker(hand):
        await shop.offer(f.trial_requested(TRIAL))
        await within(hand.began.get())
        await shop.publish(shop.message(f.trial_requested(TRIAL)))

        async def only_ours_is_open() -> bool:
            info = await shop.bus.jetstream.consumer_info("WORK", f"trial-{shop.pool}")
            return (info.num_ack_pending, info.num_pending) == (1, 0)

        await eventually(only_ours_is_open)
        hand.go_on.set()
        await shop.settled(2)
    assert hand.calls == 1


@pytest.mark.parametrize("failure", ["agent", "task", "timeout", "injected", "infrastructure"])
async def test_an_attempt_that_failed_is_a_fact_and_awaits_an_answer(
    shop: Shop, failure: str
) -> None:
    async def handler(held: Held) -> None:
        raise AttemptFailedError(failure, "so it went")

    async with shop.worker(handler):
        name = await shop.offer(f.trial_requested(TRIAL))
        await shop.settled()
    expected = ev.TrialAttemptFailed(
        TRIAL, "generate", 0, failure, failure == "injected", "so it went", "tester"
    )
    assert await shop.events("TrialAttemptFailed") == [expected]
    verdict = await shop.log.commit(Claim(name.key, 1000))
    assert (verdict.answer, verdict.failures) == ("undecided", 1)
    assert verdict.injected == (failure == "injected")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("no disk"), "RuntimeError: no disk"),
        (OSError("file \udcff\0 is odd"), "OSError: file \\udcff\0 is odd"),
        (ValueError("x" * 9000), ("ValueError: " + "x" * 9000)[:500]),
        (asyncio.CancelledError(), "cancelled within"),
    ],
    ids=["plain", "surrogate", "long", "cancelled"],
)
async def test_a_handler_that_breaks_down_is_a_failure_of_the_infrastructure(
    shop: Shop, error: BaseException, message: str
) -> None:
    async def handler(held: Held) -> None:
        raise error

    async with shop.worker(handler):
        await shop.offer(f.trial_requested(TRIAL))
        await shop.settled()
    (fact,) = await shop.events("TrialAttemptFailed")
    assert isinstance(fact, ev.TrialAttemptFailed)
    assert (fact.failure, fact.message) == ("infrastructure", message)


async def test_a_retry_brings_the_inputs_of_the_first_offer(shop: Shop) -> None:
    seen: list[Held] = []

    async def handler(held: Held) -> None:
        seen.append(held)
        if held.failures == 0:
            raise AttemptFailedError("agent", "once")
        await held.finish(f.trajectory(TRIAL))

    async with shop.worker(handler):
        await shop.offer(f.trial_requested(TRIAL))
        await shop.settled()
        at_ms = int(time.time() * 1000) + 30
        await shop.offer(ev.TrialRetryScheduled(TRIAL, "generate", 0, at_ms, 0))
        await eventually(lambda: shop.events("TrajectoryRecorded"))
    assert [held.failures for held in seen] == [0, 1]
    assert seen[1].origin == f.trial_requested(TRIAL)


async def test_the_clock_of_postgres_decides_when_a_retry_is_due(shop: Shop) -> None:
    """A worker whose clock is ahead puts the message back instead of losing it."""
    hand = Hand()
    hand.go_on.set()
    await shop.append(f.trial_requested(TRIAL))
    retry = ev.TrialRetryScheduled(TRIAL, "generate", 0, int(time.time() * 1000) + 300, 0)
    async with shop.worker(hand):
        await shop.offer(retry, not_before_ms=0)
        await eventually(lambda: shop.events("TrajectoryRecorded"))
    assert hand.calls == 1


async def test_a_lost_claim_cancels_its_handler_and_records_nothing(
    shop: Shop, run_id: str
) -> None:
    hand = Hand()
    other = PostgresLog(shop.log.database, new_incarnation())
    async with shop.worker(hand, lease_ms=600):
        name = await shop.offer(f.trial_requested(TRIAL))
        held = await within(hand.began.get())
        lost = ev.TrialAttemptFailed(TRIAL, "generate", 0, "lost")

        async def taken_over() -> bool:
            async with other.database.connection() as connection:
                await connection.execute(queries.VOID_INCARNATIONS, [shop.log.incarnation])
            claim = Claim(name.key, 60_000, held.fence, [new_event(run_id, lost)])
            return (await other.commit(claim)).ok

        await eventually(taken_over)
        await within(hand.cancelled.wait())
        await shop.settled()
    row = await shop.row(name.key)
    assert (row["incarnation"], row["done"], row["lost"]) == (other.incarnation, False, 1)
    assert await shop.events("TrialAttemptFailed", "TrajectoryRecorded") == [lost]
    await other.close()


async def test_a_claim_lost_unnoticed_cannot_record(shop: Shop) -> None:
    """The zombie's write is refused under its old fence (I8)."""
    hand = Hand()
    other = PostgresLog(shop.log.database, new_incarnation())
    async with shop.worker(hand):
        name = await shop.offer(f.trial_requested(TRIAL))
        held = await within(hand.began.get())
        async with other.database.connection() as connection:
            await connection.execute(queries.VOID_INCARNATIONS, [shop.log.incarnation])
        assert (await other.commit(Claim(name.key, 60_000, held.fence))).ok
        hand.go_on.set()
        await shop.settled()
    assert await shop.events("TrajectoryRecorded", "TrialAttemptFailed") == []
    assert not await shop.done(name.key)
    assert (await other.commit(Finish(name.key, held.fence + 1))).ok
    await other.close()


async def test_closed_work_cancels_its_handler_and_is_done(shop: Shop) -> None:
    hand = Hand()
    async with shop.worker(hand, lease_ms=600):
        name = await shop.offer(f.trial_requested(TRIAL))
        await within(hand.began.get())
        await shop.log.commit(Append([], closes=[name.key]))
        await within(hand.cancelled.wait())
        await shop.settled()
    assert await shop.done(name.key)
    assert await shop.events("TrialAttemptFailed") == []


async def test_a_subject_that_ended_meanwhile_drops_the_work(shop: Shop) -> None:
    hand = Hand()
    async with shop.worker(hand):
        name = await shop.offer(f.trial_requested(TRIAL))
        await within(hand.began.get())
        await shop.append(f.trajectory(TRIAL, n_turns=5))
        hand.go_on.set()
        await shop.settled()
    assert await shop.done(name.key)
    assert await shop.events("TrajectoryRecorded") == [f.trajectory(TRIAL, n_turns=5)]


async def test_renewals_keep_a_claim_longer_than_its_lease(shop: Shop) -> None:
    hand = Hand()
    async with shop.worker(hand, lease_ms=600):
        name = await shop.offer(f.trial_requested(TRIAL))
        await within(hand.began.get())
        first = (await shop.row(name.key))["lease_until"]

        async def outlived() -> bool:
            async with shop.log.database.connection() as connection:
                query = "select clock_timestamp() > $1::timestamptz + interval '600 ms'"
                return bool(await connection.fetchval(query, first))

        await eventually(outlived)
        assert (await shop.log.commit(Claim(name.key, 1000))).answer == "held"
        hand.go_on.set()
        await shop.settled()
    assert await shop.done(name.key)
    assert hand.calls == 1


async def test_finished_work_goes_on_to_the_next_stage_in_the_same_hands(shop: Shop) -> None:
    async def handler(held: Held) -> None:
        await held.finish_and_go_on(f.trajectory(TRIAL), [b"bytes"])
        assert (held.name.stage, held.fence) == ("verify", 1)
        await held.finish(f.verified(TRIAL))

    async with shop.worker(handler):
        name = await shop.offer(f.trial_requested(TRIAL))
        await shop.settled()
    assert await shop.done(name.key)
    assert await shop.done(f"{shop.run_id}/{TRIAL}/verify")
    assert not await shop.done(f"{shop.run_id}/{TRIAL}/judge")
    assert len(await shop.events("TrajectoryRecorded", "TrialVerified")) == 2


async def test_nothing_is_claimed_while_the_run_is_paused(shop: Shop) -> None:
    hand = Hand()
    hand.go_on.set()
    await shop.append(ev.RunPaused(0))
    async with shop.worker(hand):
        await shop.offer(f.trial_requested(TRIAL))
        await shop.settled()
        assert hand.calls == 0
        await shop.append(ev.RunResumed(0))
        await shop.publish(shop.message(f.trial_requested(TRIAL)))
        await shop.settled(2)
    assert hand.calls == 1


async def test_a_worker_that_stops_lets_its_work_end_or_gives_it_up(shop: Shop) -> None:
    hand = Hand()
    async with shop.worker(hand) as consumer:
        await shop.offer(f.trial_requested("s0-p0-n0"))
        await within(hand.began.get())
        draining = asyncio.create_task(consumer.drain(20))
        hand.go_on.set()
        await within(draining)
        assert await shop.events("TrajectoryRecorded") == [f.trajectory("s0-p0-n0")]
    stuck = Hand()
    async with shop.worker(stuck):
        name = await shop.offer(f.trial_requested("s0-p1-n0"))
        await within(stuck.began.get())
    assert stuck.cancelled.is_set()
    assert not await shop.done(name.key)


async def test_many_messages_are_worked_on_side_by_side_within_the_limit(shop: Shop) -> None:
    now, most = 0, 0

    async def handler(held: Held) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        await held.finish(ev.TrialSkipped(held.name.subject, 0, os.urandom(2).hex()))
        now -= 1

    trials = [f.trial_requested(f"s0-p{p}-n0") for p in range(60)]
    async with shop.worker(handler, concurrency=5):
        last = await shop.append(*trials)
        await shop.publish(*(shop.message(t, last - 59 + i) for i, t in enumerate(trials)))
        await shop.settled(60)
    assert len(await shop.events("TrialSkipped")) == 60
    assert 2 <= most <= 5
