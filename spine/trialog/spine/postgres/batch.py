"""A batch of members as the parallel arrays that commit_batch takes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from trialog.spine.log import (
    Append,
    Claim,
    Fail,
    Finish,
    GiveBack,
    Member,
    NewEvent,
    Release,
    Renew,
    cost_in,
)

_MEMBER_COLUMNS = 8
_EVENT_COLUMNS = 15


def batch_arguments(incarnation: int, members: Sequence[Member]) -> list[Any]:
    """Return commit_batch's arguments in order; member indexes count from 1, as SQL's do."""
    rows: list[tuple[Any, ...]] = []
    events: list[tuple[Any, ...]] = []
    closes: list[tuple[int, str]] = []
    blobs: list[tuple[int, bytes, bytes]] = []
    costs: list[tuple[int, int, int]] = []
    for index, member in enumerate(members, 1):
        rows.append(_member_row(member))
        if isinstance(member, Renew):
            continue
        events.extend(_event_row(index, event) for event in member.events)
        if (cost := cost_in(member)) is not None:
            costs.append((index, cost.tokens, cost.microusd))
        if isinstance(member, Append):
            closes.extend((index, key) for key in member.closes)
        if isinstance(member, Finish | Fail):
            blobs.extend((index, hashlib.sha256(b).digest(), b) for b in member.blobs)
    return [
        incarnation,
        *_columns(rows, _MEMBER_COLUMNS),
        *_columns(events, _EVENT_COLUMNS),
        *_columns(closes, 2),
        *_columns(blobs, 3),
        *_columns(costs, 3),
    ]


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width


def _member_row(member: Member) -> tuple[Any, ...]:
    """Kind, key, fence, partition, lease_ms, injected, kind and run of work to create."""
    match member:
        case Append(events=events, owner_fence=fence, partition=of):
            # Named only where the partition's owner is to be checked.
            partition = None if fence is None else (events[0].partition if events else of)
            return (b"a", None, fence, partition, None, None, None, None)
        case Claim(key=key, lease_ms=lease, expect=expect, creates=creates):
            kind, run = (creates.kind, creates.run_id) if creates else (None, None)
            return (b"c", key, expect, None, lease, None, kind, run)
        case Finish(key=key, fence=fence):
            return (b"f", key, fence, None, None, None, None, None)
        case Fail(key=key, fence=fence, injected=injected):
            return (b"x", key, fence, None, None, injected, None, None)
        case Release(key=key, fence=fence, dead=dead):
            return (b"d" if dead else b"b", key, fence, None, None, None, None, None)
        case GiveBack(key=key, fence=fence):
            return (b"g", key, fence, None, None, None, None, None)
        case Renew(key=key, fence=fence, lease_ms=lease):
            return (b"r", key, fence, None, lease, None, None, None)


def _event_row(index: int, event: NewEvent) -> tuple[Any, ...]:
    offer = event.offer
    return (
        index,
        event.partition,
        event.event_id,
        event.run_id,
        event.type,
        event.schema_version,
        event.data,
        event.trace_parent,
        event.body_hash,
        event.root,
        offer.work.key if offer else None,
        offer.work.kind if offer else None,
        offer is not None and offer.held_ms is not None,
        offer.held_ms if offer else None,
        offer.not_before_ms if offer else None,
    )
