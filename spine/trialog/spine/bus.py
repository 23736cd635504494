"""The bus: NATS JetStream hands out work and keeps no truth (docs/invariants.md, I10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js import errors as js_errors

from trialog.spine import telemetry

_T = TypeVar("_T")
STREAM = "WORK"
ACK_WAIT_S = 30.0
_DEDUP_S = 120.0
_MAX_AGE_S = 7 * 86_400.0
# What a missing, wiped or restarting bus raises.
DOWN = (nats.errors.Error, js_errors.Error, asyncio.TimeoutError, OSError)


def subject_of(kind: str, pool: str) -> str:
    """Return the subject on which a kind of work is offered to a pool of workers."""
    return f"work.{kind}.{pool}"


def hint_subject(partition: int) -> str:
    """Return the core-NATS subject that says a partition of the log has grown."""
    return f"hint.{partition}"


@dataclass(frozen=True, slots=True)
class StreamState:
    """Which stream it is (a wiped one comes back with another birth), and how far it got."""

    created: str
    last_sequence: int


class Bus:
    """One connection. It reconnects by itself for ever; calls raise DOWN meanwhile."""

    def __init__(self, client: Client) -> None:
        self.client = client
        # Called when the connection is back: what stood at the server is gone.
        self.reconnected: set[Callable[[], None]] = set()
        self._asking: set[asyncio.Task[Any]] = set()
        self.jetstream: JetStreamContext = client.jetstream(timeout=5)

    @classmethod
    async def connect(cls, url: str, name: str) -> Bus:
        """Connect, or raise what NATS raises when it is not there."""

        async def quiet(error: Exception) -> None:
            telemetry.logger().debug("bus", error=repr(error))

        async def back() -> None:
            for asking in list(bus._asking):
                asking.cancel()
            for call in list(bus.reconnected):
                call()

        client = await nats.connect(
            url,
            name=name,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.5,
            ping_interval=10,
            max_outstanding_pings=2,
            # A subscription that nobody reads any more must not hold up the end by 30 s.
            drain_timeout=5,
            error_cb=quiet,
            reconnected_cb=back,
        )
        bus = cls(client)
        return bus

    async def _ask(self, ask: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Ask the server, and ask anew when the connection came back meanwhile.

        The answer went with the old connection: without this each caller waits for its timeout.
        """
        caller = asyncio.current_task()
        assert caller is not None
        cancelled_before = caller.cancelling()
        while True:
            asking = asyncio.create_task(ask())
            self._asking.add(asking)
            try:
                answer = await asking
            except asyncio.CancelledError:
                if caller.cancelling() > cancelled_before:
                    raise
                continue
            finally:
                self._asking.discard(asking)
            if caller.cancelling() > cancelled_before:
                # The client's own wait_for swallowed it: the answer came at the same moment.
                raise asyncio.CancelledError
            return answer

    async def ensure_stream(self) -> StreamState:
        """Create the stream when it is not there and return what it is."""
        return await self._ask(self._ensure_stream)

    async def _ensure_stream(self) -> StreamState:
        config = api.StreamConfig(
            name=STREAM,
            subjects=["work.>"],
            storage=api.StorageType.FILE,
            retention=api.RetentionPolicy.LIMITS,
            duplicate_window=_DEDUP_S,
            max_age=_MAX_AGE_S,
        )
        try:
            info = await self.jetstream.stream_info(STREAM)
        except js_errors.NotFoundError:
            info = await self.jetstream.add_stream(config)
        created: datetime | str | None = info.created
        return StreamState(str(created), info.state.last_seq)

    async def ensure_consumer(self, kind: str, pool: str) -> str:
        """Create or update the durable consumer of a kind and pool; return its name."""
        name = f"{kind}-{pool}"
        config = api.ConsumerConfig(
            durable_name=name,
            filter_subject=subject_of(kind, pool),
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_S,
            max_deliver=-1,
            max_ack_pending=100_000,
        )
        await self._ask(lambda: self.jetstream.add_consumer(STREAM, config))
        return name

    async def delivered(self, kind: str, pool: str) -> int:
        """Return the stream sequence up to which the consumer has handed out everything."""
        try:
            info = await self._ask(lambda: self.jetstream.consumer_info(STREAM, f"{kind}-{pool}"))
        except js_errors.NotFoundError:
            # No worker has come yet, or it was deleted: autoscalers want it to exist anyway.
            await self.ensure_consumer(kind, pool)
            return 0
        return info.delivered.stream_seq if info.delivered else 0

    async def offer(self, messages: Sequence[tuple[str, bytes, str]]) -> list[int]:
        """Publish (subject, payload, message id) and return their stream sequences.

        A message id that the stream saw within two minutes is not stored twice. Raises DOWN.
        """

        async def send() -> list[int]:
            sends = [
                self.jetstream.publish(subject, payload, headers={"Nats-Msg-Id": message_id})
                for subject, payload, message_id in messages
            ]
            return [ack.seq for ack in await asyncio.gather(*sends)]

        return await self._ask(send)

    async def hint(self, partition: int) -> None:
        """Say that a partition of the log has grown; lost hints cost a poll's delay."""
        if self.client.is_connected:
            await self.client.publish(hint_subject(partition), b"")

    async def on_hint(self, partition: int, call: Callable[[], None]) -> None:
        """Call back on every hint of a partition."""

        async def received(_: Msg) -> None:
            call()

        await self.client.subscribe(hint_subject(partition), cb=received)

    async def close(self) -> None:
        """Send what is buffered and disconnect."""
        if self.client.is_connected:
            await self.client.drain()
        else:
            await self.client.close()
