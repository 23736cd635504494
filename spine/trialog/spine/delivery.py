"""Messages of the bus in a consumer's hands: read, acknowledged, put back, kept for longer.

When the bus is away none of this matters: what was not acknowledged comes again, and then finds
the work as the log has it.
"""

from __future__ import annotations

import contextlib

import msgspec
from nats.aio.msg import Msg

from trialog.proto.ids import check_run_id
from trialog.proto.work import WorkMessage, parse_key
from trialog.spine import telemetry
from trialog.spine.bus import DOWN
from trialog.spine.log import Claim, checked

_decoder = msgspec.json.Decoder(WorkMessage)


def read(message: Msg, kind: str, lease_ms: int) -> WorkMessage | None:
    """Return the message's work, or None, said aloud, when it is none of this kind's queue."""
    try:
        work = _decoder.decode(message.data)
        name = parse_key(work.key)
        check_run_id(name.run_id)
        checked(Claim(work.key, lease_ms))
        if (name.run_id, name.kind, work.kind) != (work.run_id, kind, kind):
            raise ValueError(f"{work.key} is no work of {work.run_id} for {kind}")
    except (msgspec.MsgspecError, ValueError, KeyError, RecursionError) as error:
        log = telemetry.logger()
        log.error("message dropped: it cannot be read", error=repr(error), start=message.data[:200])
        telemetry.UNREADABLE.labels(kind).inc()
        return None
    return work


async def acknowledge(message: Msg) -> None:
    """Be done with the message."""
    with contextlib.suppress(*DOWN):
        await message.ack()


async def put_back(message: Msg, pause_s: float) -> None:
    """Have the message delivered again after a pause."""
    with contextlib.suppress(*DOWN):
        await message.nak(delay=pause_s)


async def keep(message: Msg) -> None:
    """Have it delivered to nobody else for another ``bus.ACK_WAIT_S``."""
    with contextlib.suppress(*DOWN):
        await message.in_progress()
