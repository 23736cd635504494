"""A standing pull on a JetStream consumer.

The client library's ``fetch`` waits for a full batch or its timeout, so the first message of a
batch is late by up to that timeout. Here requests for as many messages as there are free slots
stand at the server, and every message is handled the moment it comes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from trialog.spine import telemetry
from trialog.spine.bus import DOWN, STREAM, Bus

_EXPIRES_S = 20.0
_HEARTBEAT_S = 2.0
_MAX_BATCH = 256
_BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)


class StandingPull:
    """Keeps ``capacity`` slots asked for; ``received`` is called for each message.

    ``release()`` gives a slot back once its message is dealt with.
    """

    def __init__(
        self,
        bus: Bus,
        kind: str,
        pool: str,
        capacity: int,
        received: Callable[[Msg], None],
    ) -> None:
        self._bus = bus
        self._kind = kind
        self._pool = pool
        self._capacity = capacity
        self._received = received
        self._busy = 0
        self._asked = 0
        self._changed = asyncio.Event()
        self._heard_at = 0.0
        self._broken = False

    def release(self) -> None:
        """Give back the slot of a message."""
        self._busy -= 1
        self._changed.set()

    async def run(self) -> None:
        """Pull until cancelled; whatever happens to the bus, start again."""
        self._bus.reconnected.add(self._reconnected)
        try:
            await self._pull_for_ever()
        finally:
            self._bus.reconnected.discard(self._reconnected)

    def _reconnected(self) -> None:
        self._broken = True
        self._changed.set()

    async def _pull_for_ever(self) -> None:
        failures = 0
        log = telemetry.logger().bind(kind=self._kind, pool=self._pool)
        while True:
            try:
                await self._bus.ensure_stream()
                name = await self._bus.ensure_consumer(self._kind, self._pool)
                await self._pull(name)
                failures = 0
            except DOWN as error:
                log.warning("no work can be had: waiting for NATS", error=repr(error))
                failures += 1
            await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])

    async def _pull(self, name: str) -> None:
        client = self._bus.client
        inbox = client.new_inbox()
        subscription: Subscription = await client.subscribe(
            inbox, cb=self._on_message, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        self._asked, self._broken, self._heard_at = 0, False, time.monotonic()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{name}"
        try:
            while not self._broken:
                self._changed.clear()
                want = min(self._capacity - self._busy - self._asked, _MAX_BATCH)
                # While some stand at the server, freed slots are asked for by the quarter.
                if want > 0 and (self._asked == 0 or want >= self._capacity // 4):
                    self._asked += want
                    self._heard_at = time.monotonic()
                    await client.publish(subject, _request(want), inbox)
                await self._wait_for_change()
        finally:
            if not client.is_closed:
                await subscription.unsubscribe()

    async def _wait_for_change(self) -> None:
        """Wait until a slot or an answer comes, or the server has been silent for too long."""
        try:
            # Not wait_for: in Python 3.11 it swallows a cancellation that comes with the change.
            async with asyncio.timeout(_HEARTBEAT_S * 1.5):
                await self._changed.wait()
        except TimeoutError:
            silent_s = time.monotonic() - self._heard_at
            self._broken = self._asked > 0 and silent_s > _HEARTBEAT_S * 2.5

    async def _on_message(self, message: Msg) -> None:
        self._heard_at = time.monotonic()
        status = (message.headers or {}).get("Status") if not message.reply else None
        if status is None and message.reply:
            self._asked -= 1
            self._busy += 1
            self._received(message)
            return
        headers = message.headers or {}
        match status:
            case "100":
                return
            case "404" | "408":
                self._asked -= int(headers.get("Nats-Pending-Messages", self._asked))
                self._asked = max(self._asked, 0)
            case _:
                # 409 consumer deleted, 503 nobody answers: begin again from the stream.
                self._broken = True
        self._changed.set()


def _request(batch: int) -> bytes:
    return json.dumps(
        {
            "batch": batch,
            "expires": int(_EXPIRES_S * 1e9),
            "idle_heartbeat": int(_HEARTBEAT_S * 1e9),
        }
    ).encode()
