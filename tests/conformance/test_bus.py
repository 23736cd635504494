"""The bus: what the services rely on of JetStream, held against the real server."""

from __future__ import annotations

import asyncio
import os

import pytest
from support.waiting import eventually
from trialog.spine.bus import DOWN, STREAM, Bus, subject_of

pytestmark = pytest.mark.stack


@pytest.fixture
def pool() -> str:
    return f"t{os.urandom(6).hex()}"


def offer(pool: str, name: str) -> tuple[str, bytes, str]:
    return subject_of("trial", pool), name.encode(), f"{pool}-{name}"


async def take(bus: Bus, pool: str) -> list[str]:
    """Take and acknowledge what is there."""
    consumer = await bus.jetstream.pull_subscribe_bind(f"trial-{pool}", STREAM)
    try:
        messages = await consumer.fetch(100, timeout=0.5)
        for message in messages:
            await message.ack_sync()
    finally:
        await consumer.unsubscribe()
    return [message.data.decode() for message in messages]


async def test_messages_come_in_the_order_of_their_sequences(bus: Bus, pool: str) -> None:
    await bus.ensure_stream()
    await bus.ensure_consumer("trial", pool)
    sequences = await bus.offer([offer(pool, name) for name in "abc"])
    assert sequences == sorted(sequences)
    assert await take(bus, pool) == ["a", "b", "c"]
    assert await bus.delivered("trial", pool) == sequences[-1]


async def test_a_message_id_is_stored_once(bus: Bus, pool: str) -> None:
    await bus.ensure_stream()
    await bus.ensure_consumer("trial", pool)
    first = await bus.offer([offer(pool, "a")])
    assert await bus.offer([offer(pool, "a"), offer(pool, "a")]) == first * 2
    assert await take(bus, pool) == ["a"]


async def test_what_was_offered_before_there_was_a_consumer_is_handed_out(
    bus: Bus, pool: str
) -> None:
    await bus.ensure_stream()
    await bus.offer([offer(pool, "early")])
    await bus.ensure_consumer("trial", pool)
    assert await take(bus, pool) == ["early"]


async def test_pools_and_kinds_do_not_see_each_others_work(bus: Bus, pool: str) -> None:
    await bus.ensure_stream()
    await bus.ensure_consumer("trial", pool)
    await bus.ensure_consumer("trial", pool + "-2")
    await bus.offer([offer(pool, "a"), (subject_of("judge", pool), b"j", pool + "-j")])
    assert await take(bus, pool) == ["a"]
    with pytest.raises(asyncio.TimeoutError):
        await take(bus, pool + "-2")


async def test_streams_and_consumers_are_made_once_by_many_at_once(bus: Bus, pool: str) -> None:
    states = await asyncio.gather(*(bus.ensure_stream() for _ in range(5)))
    assert len({state.created for state in states}) == 1
    names = await asyncio.gather(*(bus.ensure_consumer("trial", pool) for _ in range(5)))
    assert set(names) == {f"trial-{pool}"}


async def test_a_wiped_stream_comes_back_as_another(bus: Bus, pool: str) -> None:
    """I10: whoever wrote to the old one can tell."""
    before = await bus.ensure_stream()
    await bus.offer([offer(pool, "a")])
    await bus.jetstream.delete_stream(STREAM)
    with pytest.raises(DOWN):
        await bus.offer([offer(pool, "b")])
    with pytest.raises(DOWN):
        await bus.delivered("trial", pool)
    after = await bus.ensure_stream()
    assert after.created != before.created
    assert after.last_sequence == 0
    assert await bus.offer([offer(pool, "a")]) == [1]


async def test_hints_reach_every_listener(bus: Bus) -> None:
    partition = int.from_bytes(os.urandom(3))
    heard: list[int] = []
    await bus.on_hint(partition, lambda: heard.append(1))
    await bus.on_hint(partition, lambda: heard.append(2))

    async def both() -> bool:
        await bus.hint(partition)
        return {1, 2} <= set(heard)

    await eventually(both)
