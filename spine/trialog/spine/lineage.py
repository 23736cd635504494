"""What an ancestor of a fork has done already, for the worker that is about to do it.

The driver recovers what it can tell before work is asked for. What only a worker can tell, because
it depends on a trajectory that was made anew, the worker looks up: a fork executes no action that
its lineage has (docs/invariants.md, I9).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from trialog.proto import events as ev
from trialog.spine.log import EventLog

_Paid = TypeVar("_Paid", ev.TrialVerified, ev.Judged)


async def recovered(
    log: EventLog, lineage: Sequence[ev.Provenance], slot: str, key: str, kind: type[_Paid]
) -> _Paid | None:
    """Return the outcome of an action that an ancestor has in a slot, nearest first, as a run of
    its lineage records it: with where it was first recorded. None when it is to be done."""
    for ancestor in lineage:
        for event in await log.at_slots(ancestor.run_id, [slot], ancestor.position):
            fact = event.fact()
            if isinstance(fact, kind) and fact.action_key == key:
                source = ev.source_of(fact.provenance, event.run_id, event.position)
                return replace(fact, provenance=source)
    return None
