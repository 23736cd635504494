"""Messages that cannot be handled: counted in Postgres, buried, seen, and offered again."""

from __future__ import annotations

import contextlib
import os

import pytest
from support import facts as f
from support.waiting import eventually
from support.workers import Shop
from trialog.driver.relay import Relay
from trialog.driver.sweeper import Sweeper
from trialog.proto import events as ev
from trialog.proto.ids import run_id_from
from trialog.spine import telemetry
from trialog.spine.bus import DOWN, STREAM, Bus
from trialog.spine.consumer import MAX_BREAKDOWNS, Held
from trialog.spine.log import Append, Claim
from trialog.spine.postgres.log import PostgresLog

TRIAL = "s0-p0-n0"


@pytest.fixture
async def shop(log: PostgresLog, bus: Bus, run_id: str) -> Shop:
    shop = Shop(log, bus, run_id)
    await shop.begin()
    return shop


async def finish(held: Held) -> None:
    await held.finish(f.trajectory(held.name.subject))


def unreadable() -> float:
    return telemetry.UNREADABLE.labels("trial")._value.get()


GARBAGE = {
    "empty": b"",
    "no JSON": b"\xff\xfe{",
    "another shape": b'{"key": 7}',
    "nested too deep": b"[" * 100_000,
    "half a message": b'{"key":"r-abcdefghijklmnop/s0-p0-n0/generate","kind":"trial"}',
}
NAMES = {
    "no run": {"key": "x/s0-p0-n0/generate"},
    "another run's": {"key": "r-abcdefghijklmnop/s0-p0-n0/generate"},
    "no stage": {"key": "RUN/s0-p0-n0/dance"},
    "too few parts": {"key": "RUN/s0-p0-n0"},
    "another queue's": {"key": "RUN/s0-p0-n0/judge", "kind": "judge"},
    "a NUL": {"key": "RUN/s0\0/generate"},
}


@pytest.mark.parametrize("payload", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_is_counted_and_acknowledged(shop: Shop, payload: bytes) -> None:
    before = unreadable()
    async with shop.worker(finish):
        await shop.publish(payload)
        await shop.settled()
    assert unreadable() == before + 1


@pytest.mark.parametrize("changes", NAMES.values(), ids=NAMES)
async def test_a_message_that_names_no_work_of_the_queue_is_acknowledged(
    shop: Shop, changes: dict[str, str]
) -> None:
    changes = {name: text.replace("RUN", shop.run_id) for name, text in changes.items()}
    async with shop.worker(finish):
        await shop.publish(shop.message(f.trial_requested(TRIAL), 0, **changes))
        await shop.settled()
        # Neighbours in the same batches are not harmed.
        name = await shop.offer(f.trial_requested("s0-p1-n0"))
        await shop.settled(2)
    assert await shop.done(name.key)
    assert await shop.events("DeliveryDeadLettered") == []


async def test_an_unknown_run_is_acknowledged_and_leaves_nothing(shop: Shop) -> None:
    stranger = run_id_from(os.urandom(16))
    message = shop.message(
        f.trial_requested(TRIAL), run_id=stranger, key=f"{stranger}/{TRIAL}/generate"
    )
    async with shop.worker(finish):
        await shop.publish(message)
        await shop.settled()
    assert await shop.log.read_run(stranger, 0, 10) == []


@pytest.mark.parametrize("changes", [{"schema_version": 99}, {"type": "TrialDreamt"}])
async def test_an_event_from_the_future_is_dead_after_five_times(
    shop: Shop, changes: dict[str, object]
) -> None:
    async with shop.worker(finish):
        name = await shop.offer(f.trial_requested(TRIAL), **changes)
        await eventually(lambda: shop.events("DeliveryDeadLettered"))
        await shop.settled(MAX_BREAKDOWNS)
    (dead,) = await shop.events("DeliveryDeadLettered")
    assert isinstance(dead, ev.DeliveryDeadLettered)
    assert (dead.key, dead.kind, dead.n) == (name.key, "trial", 0)
    assert (dead.deliveries, "UnknownEventError" in dead.error) == (MAX_BREAKDOWNS, True)
    # The sweeper lets it be and nobody can claim it; the API can show it.
    open_keys = [work.key for work in await shop.log.open_work(0, 0, 100_000)]
    assert name.key not in open_keys
    assert (await shop.log.commit(Claim(name.key, 1000))).answer == "done"
    (shown,) = await shop.log.dead_work(shop.run_id)
    assert (shown.key, shown.breakdowns) == (name.key, MAX_BREAKDOWNS)


async def test_a_run_that_cannot_be_read_is_no_reason_to_deliver_for_ever(
    log: PostgresLog, bus: Bus, run_id: str
) -> None:
    shop = Shop(log, bus, run_id)
    await shop.append(ev.RunRequested({"from_the_future": True}, run_id, "weights"))
    async with shop.worker(finish):
        await shop.offer(f.trial_requested(TRIAL))
        await eventually(lambda: shop.events("DeliveryDeadLettered"))


async def test_the_count_outlives_the_bus(shop: Shop) -> None:
    """The bus keeps no truth: wiped after the third time, there are two left."""
    async with shop.worker(finish):
        name = await shop.offer(f.trial_requested(TRIAL), schema_version=99)

        async def broke_down() -> bool:
            return (await shop.row(name.key))["breakdowns"] >= 3

        await eventually(broke_down)
    with contextlib.suppress(*DOWN):
        await shop.bus.jetstream.delete_stream(STREAM)
    so_far = (await shop.row(name.key))["breakdowns"]
    assert 3 <= so_far < MAX_BREAKDOWNS
    async with shop.worker(finish):
        await shop.publish(shop.message(f.trial_requested(TRIAL), schema_version=99))
        await eventually(lambda: shop.events("DeliveryDeadLettered"))
        await shop.settled(MAX_BREAKDOWNS - so_far)
    (dead,) = await shop.events("DeliveryDeadLettered")
    assert isinstance(dead, ev.DeliveryDeadLettered)
    assert dead.deliveries == MAX_BREAKDOWNS


async def test_dead_work_is_reopened_offered_by_the_sweeper_and_done(shop: Shop) -> None:
    relay = Relay(shop.log, shop.bus, 0, shop.pool, lambda event: True)
    sweeper = Sweeper(shop.log, shop.bus, relay, 0, shop.pool)
    async with shop.worker(finish):
        # The message on the bus is bad, the event on the log is good.
        name = await shop.offer(f.trial_requested(TRIAL), schema_version=99)
        await eventually(lambda: shop.events("DeliveryDeadLettered"))
        assert await shop.log.reopen([name.key, "no/such/work"]) == [name.key]
        assert await shop.log.reopen([name.key]) == []
        assert await shop.log.dead_work(shop.run_id) == []
        await sweeper.offer_lapsed()
        await eventually(lambda: shop.events("TrajectoryRecorded"))
    assert await shop.done(name.key)
    assert not (await shop.row(name.key))["reoffer"]


async def test_what_is_dead_twice_has_two_facts(shop: Shop) -> None:
    async with shop.worker(finish):
        name = await shop.offer(f.trial_requested(TRIAL), schema_version=99)
        await eventually(lambda: shop.events("DeliveryDeadLettered"))
        await shop.log.reopen([name.key])
        await shop.publish(shop.message(f.trial_requested(TRIAL), schema_version=99))

        async def twice() -> bool:
            return len(await shop.events("DeliveryDeadLettered")) == 2

        await eventually(twice)
    facts = await shop.events("DeliveryDeadLettered")
    assert [(fact.n, fact.deliveries) for fact in facts] == [(0, 5), (1, 10)]  # pyright: ignore


async def test_dead_work_that_nobody_needs_any_more_stays_dead(shop: Shop) -> None:
    async with shop.worker(finish):
        name = await shop.offer(f.trial_requested(TRIAL), schema_version=99)
        await eventually(lambda: shop.events("DeliveryDeadLettered"))
    await shop.log.commit(Append([], closes=[name.key]))
    assert await shop.log.reopen([name.key]) == []
    assert await shop.log.dead_work(shop.run_id) == []
    assert await shop.done(name.key)
