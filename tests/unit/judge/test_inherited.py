"""A judgment that an ancestor has of the same is not made again: only a judge can tell, of a trial
that was tried anew and came out as it was."""

from __future__ import annotations

import pytest
from support.judging import TRIAL, Bench, Desk
from trialog.proto import events as ev
from trialog.spine.memory.blobs import MemoryBlobs
from trialog.spine.memory.log import MemoryLog
from trialog.spine.memory.store import MemoryStore

FLAKY = {"judge_flake_rate": 1.0}


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def bench(desk: Desk) -> Bench:
    store = MemoryStore()
    return Bench(MemoryLog(store), MemoryBlobs(store), desk)


async def judged(bench: Bench, run_id: str) -> ev.Judged:
    await bench.verified(run_id)
    while await bench.judge(run_id) != "done":
        pass
    (fact,) = await bench.facts(run_id, ev.Judged)
    return fact


async def test_a_fork_takes_its_ancestors_judgment(bench: Bench, desk: Desk) -> None:
    parent = await bench.run(faults=FLAKY)
    theirs = await judged(bench, parent)
    fork = await bench.run(parent, faults=FLAKY)
    ours = await judged(bench, fork)
    event = await bench.log.at_slot(parent, f"end:{TRIAL}")
    assert event is not None
    assert ours.provenance == ev.Provenance(parent, event.position)
    assert (ours.digest, ours.bill) == (theirs.digest, theirs.bill)
    assert await bench.facts(fork, ev.JudgeCallRecorded, ev.TrialAttemptFailed) == []
    again = await judged(bench, await bench.run(fork, faults=FLAKY))
    assert again.provenance == ours.provenance, "who paid"
    assert len(desk.calls) == 1


async def test_another_rubric_is_judged_anew(bench: Bench, desk: Desk) -> None:
    parent = await bench.run()
    await judged(bench, parent)
    assert (await judged(bench, await bench.run(parent, rubric="v2-efficiency"))).provenance is None
    assert len(desk.calls) == 2


async def test_what_came_after_the_fork_is_not_seen_but_its_calls_are_found(
    bench: Bench, desk: Desk
) -> None:
    parent = await bench.run()
    fork = await bench.run(parent)
    await judged(bench, parent)
    ours = await judged(bench, fork)
    assert ours.provenance is None and ours.memo.calls == 1
    assert len(desk.calls) == 1
