"""The group-commit writer under any schedule: whole batches, order kept, nobody left waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from trialog.proto import events as ev
from trialog.spine.log import Append, Claim, Fail, Finish, Member, Renew, Verdict, new_event
from trialog.spine.writer import MAX_MEMBERS, GroupWriter

RUN = "r-abcdefghijklmnop"
KEYS = st.sampled_from([f"key-{n}" for n in range(5)])
TRIALS = st.sampled_from([f"s0-p{n}-n0" for n in range(5)])


def event(trial: str):
    return new_event(RUN, ev.TrialSkipped(trial, 0, "test"))


def offer(trial: str):
    return new_event(RUN, ev.TrajectoryRecorded(trial, 0, "k", "d", "b", 1, 0))


EVENTS = st.builds(event, TRIALS) | st.builds(offer, TRIALS)
SOME = st.lists(EVENTS, max_size=2, unique_by=lambda event: event.event_id)
MEMBERS = st.one_of(
    st.builds(Append, SOME, st.none(), st.lists(KEYS, max_size=2, unique=True)),
    st.builds(Claim, KEYS, st.just(1000), st.none(), SOME),
    st.builds(Finish, KEYS, st.integers(1, 3), SOME),
    st.builds(Fail, KEYS, st.integers(1, 3), SOME),
    st.builds(Renew, KEYS, st.integers(1, 3), st.just(1000)),
)
# Members, each with how often others get a turn before it is written.
SCHEDULE = st.lists(st.tuples(MEMBERS, st.integers(0, 3)), max_size=40)


class PoisonError(Exception):
    """What one member's data causes."""


class BrokenError(Exception):
    """What a broken connection causes."""


def touched(member: Member) -> set[object]:
    """Return the work keys and event ids that a member writes."""
    if isinstance(member, Renew):
        return {member.key}
    found: set[object] = {event.event_id for event in member.events}
    found |= {event.offer.work.key for event in member.events if event.offer}
    return found | (set(member.closes) if isinstance(member, Append) else {member.key})


class Recorder:
    """Commits like a database that takes its time, and keeps every batch."""

    def __init__(self, fails: Callable[[Sequence[Member]], Exception | None]) -> None:
        self.tried: list[list[Member]] = []
        self.batches: list[list[Member]] = []
        self.busy = False
        self._fails = fails

    async def commit(self, members: Sequence[Member]) -> list[Verdict]:
        assert not self.busy, "one batch at a time"
        self.busy = True
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.busy = False
        self.tried.append(list(members))
        if error := self._fails(members):
            raise error
        self.batches.append(list(members))
        return [Verdict("ok", result=id(member)) for member in members]


def run(
    schedule: list[tuple[Member, int]],
    fails: Callable[[Sequence[Member]], Exception | None] = lambda members: None,
) -> tuple[Recorder, list[Any]]:
    """Write members on a schedule; return the recorder and what each caller got."""

    async def write_all() -> tuple[Recorder, list[Any]]:
        recorder = Recorder(fails)
        writer = GroupWriter(recorder.commit, lambda error: isinstance(error, PoisonError))
        writes: list[asyncio.Task[Verdict]] = []
        for member, turns in schedule:
            for _ in range(turns):
                await asyncio.sleep(0)
            writes.append(asyncio.create_task(writer.write(member)))
        got = await asyncio.wait_for(asyncio.gather(*writes, return_exceptions=True), 10)
        await writer.close()
        return recorder, got

    return asyncio.run(write_all())


@given(SCHEDULE)
def test_every_member_is_written_once_and_everyone_gets_his_own_verdict(
    schedule: list[tuple[Member, int]],
) -> None:
    recorder, got = run(schedule)
    members = [member for member, _ in schedule]
    assert [verdict.result for verdict in got] == [id(member) for member in members]
    written = [id(member) for batch in recorder.batches for member in batch]
    assert sorted(written) == sorted(map(id, members))


@given(SCHEDULE)
def test_a_batch_has_no_key_and_no_event_twice(schedule: list[tuple[Member, int]]) -> None:
    recorder, _ = run(schedule)
    for batch in recorder.batches:
        assert 0 < len(batch) <= MAX_MEMBERS
        seen: set[object] = set()
        for member in batch:
            assert seen.isdisjoint(touched(member))
            seen |= touched(member)


@given(SCHEDULE)
def test_members_that_touch_the_same_are_written_in_order(
    schedule: list[tuple[Member, int]],
) -> None:
    """Renewals apart, which go first."""
    recorder, _ = run(schedule)
    place = {id(m): n for n, batch in enumerate(recorder.batches) for m in batch}
    rest = [member for member, _ in schedule if not isinstance(member, Renew)]
    for n, earlier in enumerate(rest):
        for later in rest[n + 1 :]:
            if not touched(earlier).isdisjoint(touched(later)):
                assert place[id(earlier)] < place[id(later)]


@given(SCHEDULE, st.sets(st.integers(0, 39)))
def test_bad_data_fails_its_own_member_alone(
    schedule: list[tuple[Member, int]], poisoned: set[int]
) -> None:
    bad = {id(member) for n, (member, _) in enumerate(schedule) if n in poisoned}

    def fails(members: Sequence[Member]) -> Exception | None:
        return PoisonError() if any(id(member) in bad for member in members) else None

    recorder, got = run(schedule, fails)
    for (member, _), answer in zip(schedule, got, strict=True):
        assert isinstance(answer, PoisonError) == (id(member) in bad)
    written = [id(member) for batch in recorder.batches for member in batch]
    assert sorted(written) == sorted(id(m) for m, _ in schedule if id(m) not in bad)


@given(SCHEDULE, st.integers(0, 5))
def test_a_broken_connection_fails_its_batch_and_not_the_next(
    schedule: list[tuple[Member, int]], broken: int
) -> None:
    tries = 0

    def fails(members: Sequence[Member]) -> Exception | None:
        nonlocal tries
        tries += 1
        return BrokenError() if tries == broken + 1 else None

    recorder, got = run(schedule, fails)
    failed = [isinstance(answer, BrokenError) for answer in got]
    lost = recorder.tried[broken] if len(recorder.tried) > broken else []
    assert sum(failed) == len(lost)
    assert {id(m) for (m, _), f in zip(schedule, failed, strict=True) if f} == set(map(id, lost))


@given(SCHEDULE, st.sets(st.integers(0, 39)))
def test_a_caller_that_gives_up_takes_nothing_back(
    schedule: list[tuple[Member, int]], cancelled: set[int]
) -> None:
    async def write_all() -> Recorder:
        recorder = Recorder(lambda members: None)
        writer = GroupWriter(recorder.commit, lambda error: False)
        writes = [asyncio.create_task(writer.write(member)) for member, _ in schedule]
        await asyncio.sleep(0)
        for n, write in enumerate(writes):
            if n in cancelled:
                write.cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        await writer.close()
        return recorder

    recorder = asyncio.run(write_all())
    assert sum(map(len, recorder.batches)) == len(schedule)
