"""What an ancestor has done already, as a worker looks it up: by slot and key, as far as its run
sees, the nearest first, with who paid for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support import facts as f
from trialog.proto import events as ev
from trialog.spine import lineage
from trialog.spine.log import Append, new_event
from trialog.spine.memory.log import MemoryLog

TRIAL = "s0-p0-n0"
ROOT, PARENT = "r-aaaaaaaaaaaaaaaa", "r-bbbbbbbbbbbbbbbb"


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


async def append(log: MemoryLog, run_id: str, *facts: ev.Fact) -> int:
    """Put facts on the log; return the position of the last."""
    result = (await log.commit(Append([new_event(run_id, fact) for fact in facts]))).check().result
    assert result is not None
    return result


async def look(log: MemoryLog, *seen: ev.Provenance, key: str = "judge-key") -> ev.Judged | None:
    return await lineage.recovered(log, seen, f"end:{TRIAL}", key, ev.Judged)


async def test_what_an_ancestor_has_under_the_same_key_is_found(log: MemoryLog) -> None:
    at = await append(log, PARENT, f.run_requested(PARENT), f.judged(TRIAL))
    seen = ev.Provenance(PARENT, at)
    assert await look(log, seen) == f.judged(TRIAL, provenance=seen)
    assert await look(log, seen, key="another key") is None
    other = await lineage.recovered(log, [seen], f"end:{TRIAL}", "judge-key", ev.TrialVerified)
    assert other is None, "of another kind"


async def test_nothing_beyond_the_pin_is_found(log: MemoryLog) -> None:
    at = await append(log, PARENT, f.run_requested(PARENT), f.judged(TRIAL))
    assert await look(log, ev.Provenance(PARENT, at - 1)) is None


async def test_a_skip_is_no_judgment(log: MemoryLog) -> None:
    at = await append(log, PARENT, f.run_requested(PARENT), ev.TrialSkipped(TRIAL, 0, "straggler"))
    assert await look(log, ev.Provenance(PARENT, at)) is None


async def test_the_nearest_counts_and_keeps_who_paid_for_it(log: MemoryLog) -> None:
    first = await append(log, ROOT, f.run_requested(ROOT), f.judged(TRIAL))
    paid = ev.Provenance(ROOT, first)
    near = f.judged(TRIAL, reward=3.0, provenance=paid)
    second = await append(log, PARENT, f.run_requested(PARENT), near)
    assert await look(log, ev.Provenance(PARENT, second), paid) == near


async def test_a_further_ancestor_is_asked_where_the_nearest_has_another_key(
    log: MemoryLog,
) -> None:
    first = await append(log, ROOT, f.run_requested(ROOT), f.judged(TRIAL))
    other = replace(f.judged(TRIAL), action_key="another key")
    second = await append(log, PARENT, f.run_requested(PARENT), other)
    found = await look(log, ev.Provenance(PARENT, second), ev.Provenance(ROOT, first))
    assert found is not None and found.provenance == ev.Provenance(ROOT, first)


async def test_a_run_without_ancestors_finds_nothing(log: MemoryLog) -> None:
    await append(log, PARENT, f.run_requested(PARENT), f.judged(TRIAL))
    assert await look(log) is None
