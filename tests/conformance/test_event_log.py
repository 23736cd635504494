"""The log in memory and in Postgres: slots, whole members, owners, the chain, what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import math

import pytest
from support import facts as f
from support.logs import Ledger
from trialog.proto import events as ev
from trialog.proto.canonical import bytes_digest
from trialog.spine.log import (
    MAX_INLINE_BLOB_BYTES,
    Append,
    Claim,
    EventTooLargeError,
    FencedError,
    Finish,
    InvalidMemberError,
    Renew,
    SlotTakenError,
    new_event,
)

TRIAL, TWIN = "s0-p0-n0", "s0-p1-n0"
ASKED, TRIED = f.trial_requested(TRIAL), f.trajectory(TRIAL)


async def test_events_get_the_next_positions_and_are_read_back_as_they_were(
    ledger: Ledger,
) -> None:
    log = ledger.open()
    await ledger.begin(log)
    verdict = await ledger.append(log, ASKED, TRIED)
    assert (verdict.answer, verdict.result) == ("ok", 3)
    events = await log.read(ledger.partition, 1, 10)
    assert [event.position for event in events] == [2, 3]
    assert [event.fact() for event in events] == [ASKED, TRIED]
    assert events == (await log.read_run(ledger.run_id, 1, 10))
    assert await log.read(ledger.partition, 1, 1) == events[:1]
    assert await log.at_position(ledger.partition, 3) == events[1]
    assert await log.at_slot(ledger.run_id, f"trajectory:{TRIAL}") == events[1]
    assert await log.end(ledger.partition) == 3
    assert events[0].recorded_at.utcoffset() is not None


async def test_what_is_not_there_is_nothing(ledger: Ledger) -> None:
    log = ledger.open()
    assert await log.end(ledger.partition) == 0
    assert await log.end(10**8) == 0
    assert await log.read(ledger.partition, 0, 10) == []
    assert await log.read_run(ledger.run_id, 0, 10) == []
    assert await log.at_slot(ledger.run_id, "run") is None
    assert await log.at_position(ledger.partition, 1) is None
    assert await log.at_position(ledger.partition, 0) is None


async def test_slots_are_read_as_far_as_a_position(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log, ASKED, f.trial_requested(TWIN), TRIED, f.trajectory(TWIN))
    held = await log.read_run(ledger.run_id, 1, 10)
    slots = [f"trajectory:{TWIN}", f"verified:{TWIN}", f"trajectory:{TRIAL}", f"trial:{TRIAL}"]
    assert await log.at_slots(ledger.run_id, slots, 9) == [held[0], held[2], held[3]], "in order"
    assert await log.at_slots(ledger.run_id, [*slots, *slots], 9) == [held[0], held[2], held[3]]
    assert await log.at_slots(ledger.run_id, slots, 4) == [held[0], held[2]]
    assert await log.at_slots(ledger.run_id, slots, 1) == []
    assert await log.at_slots(ledger.run_id, [], 9) == []
    assert await log.at_slots("r-zzzzzzzzzzzzzzzz", slots, 9) == []


async def test_events_of_a_type_are_read_between_two_slots(ledger: Ledger) -> None:
    log = ledger.open()
    asked = [f.trial_requested(f"s{step}-p0-n0", step) for step in range(3)]
    first, second = f.step_applied(0), f.step_applied(1)
    await ledger.begin(log, asked[0], TRIED, first, asked[1], second, asked[2])

    async def between(after: str, before: str, until: int = 99) -> list[ev.Fact]:
        found = await log.between(ledger.run_id, "TrialRequested", after, before, until)
        return [event.fact() for event in found]

    assert await between("step-applied:0", "step-applied:1") == [asked[1]]
    assert await between("step-applied:-1", "step-applied:0") == [asked[0]]
    assert await between("step-applied:1", "step-applied:2") == [asked[2]]
    assert await between("step-applied:8", "step-applied:9") == asked, "bounds nothing"
    assert await between("step-applied:8", "step-applied:9", 5) == asked[:2]
    assert await between("step-applied:8", "step-applied:9", 4) == asked[:1]
    assert await between("step-applied:0", "step-applied:0") == []
    found = await log.between(ledger.run_id, "StepApplied", "run", f"trial:{asked[2].trial_id}", 99)
    assert [event.fact() for event in found] == [first, second]


async def test_what_is_done_is_told_apart(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log, f.trial_requested(TWIN))
    key, fence = await ledger.held(log, ASKED)
    free, unknown = ledger.key(f.trial_requested(TWIN)), "r-zzzzzzzzzzzzzzzz/s0-p0-n0/judge"
    assert await log.done([key, free, unknown]) == set()
    assert (await log.commit(Finish(key, fence, [ledger.event(TRIED)]))).ok
    assert await log.done([key, free, unknown, key]) == {key}
    assert await log.done([]) == set()


async def test_the_first_event_of_a_slot_wins(ledger: Ledger) -> None:
    """I2: said again it is the same, said otherwise it is refused, with the winner in place."""
    log = ledger.open()
    await ledger.begin(log, TRIED)
    again = await ledger.append(log, TRIED)
    assert (again.answer, again.result) == ("ok", 2)
    other = await ledger.append(log, f.trajectory(TRIAL, n_turns=6))
    assert other.answer == "different"
    with pytest.raises(SlotTakenError):
        other.check()
    assert await ledger.recorded(log) == [TRIED]


async def test_a_trial_has_one_end_whichever_comes_first(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log, ev.TrialSkipped(TRIAL, 0, "step_deadline"))
    assert (await ledger.append(log, f.judged(TRIAL))).answer == "different"
    assert (await ledger.append(log, ev.TrialCancelled(TRIAL, 0))).answer == "different"


async def test_a_refused_event_leaves_nothing_of_its_member_and_harms_no_neighbour(
    ledger: Ledger,
) -> None:
    log = ledger.open()
    await ledger.begin(log, f.trajectory(TRIAL, n_turns=6))
    key, fence = await ledger.held(log, ASKED)
    finish = Finish(
        key, fence, [ledger.event(f.trial_requested(TWIN)), ledger.event(TRIED)], [b"x"]
    )
    neighbour = Append([ledger.event(f.verified(TRIAL))])
    refused, kept = await asyncio.gather(log.commit(finish), log.commit(neighbour))
    assert (refused.answer, kept.answer) == ("different", "ok")
    assert not await ledger.holds_blob(bytes_digest(b"x"))
    assert not (await ledger.row(key))["done"]
    twin_key = ledger.key(f.trial_requested(TWIN))
    assert (await log.commit(Claim(twin_key, 1000))).answer == "unknown"
    assert f.verified(TRIAL) in await ledger.recorded(log)
    assert f.trial_requested(TWIN) not in await ledger.recorded(log)
    assert (await log.commit(Renew(key, fence, 1000))).answer == "ok"


async def test_what_a_member_says_twice_it_says_once(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    assert (await ledger.append(log, ASKED, TRIED, ASKED)).result == 3
    assert await ledger.recorded(log) == [ASKED, TRIED]
    with pytest.raises(SlotTakenError):
        await ledger.append(log, f.verified(TRIAL), f.verified(TRIAL, n_turns=1))


async def test_a_partition_has_one_owner_and_fences_the_one_before(ledger: Ledger) -> None:
    log, other = ledger.open(), ledger.open()
    await ledger.begin(log)
    fence = await ledger.own(log)
    assert fence == 1
    assert await ledger.own(other) is None
    assert await ledger.own(other, gone=other.incarnation + 1) is None
    assert (await ledger.append(log, ASKED, owner_fence=fence)).ok
    newer = await ledger.own(other, gone=log.incarnation)
    assert newer == 2
    late = await ledger.append(log, TRIED, owner_fence=fence)
    assert late.answer == "fenced"
    with pytest.raises(FencedError):
        late.check()
    assert not await ledger.keep(log, fence)
    assert await ledger.keep(other, newer)
    # Nor does it close work, alone or beside what others write.
    closes = Append([], fence, [ledger.key(ASKED)], ledger.partition)
    beside = Append([ledger.event(f.verified(TRIAL))])
    verdicts = await asyncio.gather(log.commit(closes), log.commit(beside))
    assert [verdict.answer for verdict in verdicts] == ["fenced", "ok"]
    assert (await log.commit(closes)).answer == "fenced"
    assert not (await ledger.row(ledger.key(ASKED)))["closed"]
    await ledger.leave(log, fence)
    assert await ledger.own(log) is None
    await ledger.leave(other, newer)
    assert await ledger.own(log) == 3
    assert await ledger.own(log) == 4


async def test_the_chain_verifies_and_shows_what_was_changed(ledger: Ledger) -> None:
    """I1."""
    log = ledger.open()
    await ledger.begin(log, ASKED, TRIED)
    assert (await ledger.append(log, f.verified(TRIAL), f.judged(TRIAL))).ok
    assert await log.broken_link(ledger.partition, 0, 10**9) is None
    await ledger.tamper(4, data=ev.encode(f.verified(TRIAL, n_turns=1)).decode())
    assert await log.broken_link(ledger.partition, 0, 10**9) == 4
    assert await log.broken_link(ledger.partition, 0, 3) is None
    assert await log.broken_link(ledger.partition, 4, 10**9) is None
    await ledger.tamper(2, run_id="r-zzzzzzzzzzzzzzzz")
    assert await log.broken_link(ledger.partition, 0, 10**9) == 2


@pytest.mark.parametrize(("position", "shown_at"), [(1, 2), (2, 3), (4, 4)])
async def test_the_chain_shows_what_was_removed(
    ledger: Ledger, position: int, shown_at: int
) -> None:
    log = ledger.open()
    await ledger.begin(log, ASKED, TRIED, f.verified(TRIAL))
    await ledger.remove(position)
    assert await log.broken_link(ledger.partition, 0, 10**9) == shown_at


async def test_text_of_any_kind_is_kept(ledger: Ledger) -> None:
    log = ledger.open()
    texts = ["NUL \0 in it", '\u0001\x7f\u2028"\\', "\U0001f600 e\u0301", "\ud800 alone", "\udcff"]
    await ledger.begin(log)
    for n, text in enumerate(texts):
        fact = ev.TrialAttemptFailed(TRIAL, "generate", n, "agent", message=text)
        await log.commit(Append([ledger.event(fact)]))
    facts = await ledger.recorded(log)
    kept = [fact.message for fact in facts if isinstance(fact, ev.TrialAttemptFailed)]
    assert kept == [*texts[:3], "\\ud800 alone", "\\udcff"]
    assert await log.broken_link(ledger.partition, 0, 10**9) is None


async def test_a_run_may_have_a_nul_in_its_spec(ledger: Ledger) -> None:
    log = ledger.open()
    request = ev.RunRequested({"rubric": {"prompt": "a\0b"}}, ledger.run_id, "w")
    assert (await ledger.append(log, request)).ok
    assert await ledger.run_state() == "running"


def test_what_cannot_be_kept_is_refused_before_it_is_queued(ledger: Ledger) -> None:
    with pytest.raises(EventTooLargeError, match="limit is 4096"):
        ledger.event(ev.RunFailed("x" * 4096))
    for number in (math.nan, math.inf):
        with pytest.raises(InvalidMemberError, match="read back"):
            ledger.event(f.judged(TRIAL, reward=number))
        with pytest.raises(InvalidMemberError, match="read back"):
            ledger.event(f.judged(TRIAL, scores={"correct": number}))
    with pytest.raises(InvalidMemberError, match="read back"):
        ledger.event(ev.TrialCancelled(None, 0))  # pyright: ignore[reportArgumentType]


async def test_members_that_cannot_be_kept_are_refused_before_they_are_queued(
    ledger: Ledger,
) -> None:
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    bad = [
        Claim("nul\0", 1000),
        Claim("lone\ud800", 1000),
        Claim(key, 0),
        Claim(key, 2**31),
        Renew(key, fence, -1),
        Renew(key, 2**63, 1000),
        Finish(key, fence, (), [bytes(MAX_INLINE_BLOB_BYTES + 1)]),
        Append([], closes=["nul\0"]),
    ]
    for member in bad:
        with pytest.raises(InvalidMemberError):
            await log.commit(member)
    largest = bytes(MAX_INLINE_BLOB_BYTES)
    assert (await log.commit(Finish(key, fence, [ledger.event(TRIED)], [largest]))).ok
    assert await ledger.holds_blob(hashlib.sha256(largest).hexdigest())


async def test_an_unknown_partition_is_refused_and_harms_no_neighbour(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    stray = f.trial_requested(TWIN)
    results = await asyncio.gather(
        ledger.append(log, ASKED),
        log.commit(Append([ledger.event(TRIED), new_event(ledger.run_id, stray, partition=10**8)])),
        ledger.append(log, f.verified(TRIAL)),
        return_exceptions=True,
    )
    assert isinstance(results[1], InvalidMemberError)
    assert await ledger.recorded(log) == [ASKED, f.verified(TRIAL)]
    with pytest.raises(InvalidMemberError):
        await log.commit(Append([], owner_fence=1, partition=10**8))
