"""The group-commit writer's limits and its end (its order is tried in tests/property)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from support import facts as f
from trialog.spine.log import Append, Finish, Member, Renew, Verdict, new_event
from trialog.spine.writer import MAX_BYTES, MAX_MEMBERS, GroupWriter


class Slow:
    """Commits when told to."""

    def __init__(self) -> None:
        self.batches: list[list[Member]] = []
        self.go_on = asyncio.Event()

    async def commit(self, members: Sequence[Member]) -> list[Verdict]:
        self.batches.append(list(members))
        await self.go_on.wait()
        return [Verdict("ok")] * len(members)


def append(n: int) -> Append:
    return Append([new_event(f.RUN, f.trial_requested(f"s0-p{n}-n0"))])


async def begin(writer: GroupWriter, members: Sequence[Member]) -> list[asyncio.Task[Verdict]]:
    tasks = [asyncio.create_task(writer.write(member)) for member in members]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_what_comes_while_a_batch_is_written_shares_the_next() -> None:
    slow = Slow()
    writer = GroupWriter(slow.commit, lambda error: False)
    first = await begin(writer, [append(0)])
    rest = await begin(writer, [append(n) for n in range(1, 100)])
    assert [len(batch) for batch in slow.batches] == [1]
    slow.go_on.set()
    await asyncio.gather(*first, *rest)
    assert [len(batch) for batch in slow.batches] == [1, 99]
    await writer.close()


async def test_a_batch_has_its_limits_in_members_and_bytes() -> None:
    slow = Slow()
    slow.go_on.set()
    writer = GroupWriter(slow.commit, lambda error: False)
    await asyncio.gather(*await begin(writer, [append(n) for n in range(MAX_MEMBERS + 10)]))
    assert [len(batch) for batch in slow.batches] == [MAX_MEMBERS, 10]
    large = [Finish(f"a/{n}/b", 1, (), [bytes(30_000)] * 10) for n in range(10)]
    await asyncio.gather(*await begin(writer, large))
    sizes = [len(batch) for batch in slow.batches[2:]]
    assert sum(sizes) == 10
    assert max(sizes) * 300_000 <= MAX_BYTES + 300_000
    await writer.close()


async def test_renewals_go_first() -> None:
    slow = Slow()
    writer = GroupWriter(slow.commit, lambda error: False)
    crowd = [append(n) for n in range(1, 2 * MAX_MEMBERS)]
    tasks = await begin(writer, [append(0), *crowd])
    renewal = Renew("a/b/generate", 1, 1000)
    tasks += await begin(writer, [renewal])
    slow.go_on.set()
    await asyncio.gather(*tasks)
    assert renewal in slow.batches[1]
    await writer.close()


async def test_closing_writes_what_is_queued_and_takes_no_more() -> None:
    slow = Slow()
    writer = GroupWriter(slow.commit, lambda error: False)
    tasks = await begin(writer, [append(n) for n in range(300)])
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="closed"):
        await writer.write(append(301))
    slow.go_on.set()
    await closing
    assert all(task.done() for task in tasks)
    assert sum(map(len, slow.batches)) == 300


async def test_a_writer_that_never_wrote_closes() -> None:
    await GroupWriter(Slow().commit, lambda error: False).close()
