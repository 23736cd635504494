"""A reply is on the log before anything else can fail: what a call meets on its way there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest
from support.judging import Bench, Desk
from support.waiting import eventually
from trialog.judge import calls as calls_module
from trialog.judge.clients import MAX_REPLY_BYTES
from trialog.judge.errors import JudgeRefusedError, JudgeTimeoutError, JudgeUnavailableError
from trialog.judge.replies import MAX_TOKENS
from trialog.proto import events as ev
from trialog.proto.canonical import bytes_digest
from trialog.proto.rubric import Criterion, Rubric
from trialog.proto.work import call_work_key
from trialog.spine.blobs import BlobsUnavailableError
from trialog.spine.consumer import AttemptFailedError
from trialog.spine.log import MAX_EVENT_BYTES, MAX_INLINE_BLOB_BYTES, Fail, Finish, Member, Verdict
from trialog.spine.memory.blobs import MemoryBlobs
from trialog.spine.memory.log import MemoryLog
from trialog.spine.memory.store import MemoryStore

T = TypeVar("T")
ENDS = [
    ev.RunPaused(0),
    ev.RunCancelled("enough"),
    ev.RunFailed("fail_fast"),
    ev.RunCompleted(1, "w"),
]


class SlowLog(MemoryLog):
    """A log that holds back writes of some kinds until told to go on: Postgres is away."""

    def __init__(self, store: MemoryStore, *kinds: type[Member]) -> None:
        super().__init__(store)
        self.kinds = kinds
        self.reached: asyncio.Queue[Member] = asyncio.Queue()
        self.answers: asyncio.Queue[str] = asyncio.Queue()
        self.back = asyncio.Event()

    async def commit(self, member: Member) -> Verdict:
        """As the group writer does: whoever gives up waiting, what was queued is written."""
        return await asyncio.shield(asyncio.ensure_future(self._commit(member)))

    async def _commit(self, member: Member) -> Verdict:
        if isinstance(member, self.kinds):
            self.reached.put_nowait(member)
            await self.back.wait()
        verdict = await super().commit(member)
        self.answers.put_nowait(verdict.answer)
        return verdict


class BrokenFolder(MemoryBlobs):
    """Large blobs cannot be written: at once, or without an answer."""

    hangs = False

    async def put(self, data: bytes) -> str:
        if len(data) <= MAX_INLINE_BLOB_BYTES:
            return await super().put(data)
        if self.hangs:
            await asyncio.Event().wait()
        raise BlobsUnavailableError("No space left on device")


class SlowFolder(MemoryBlobs):
    """Large blobs take until told."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.reached, self.back = asyncio.Event(), asyncio.Event()

    async def put(self, data: bytes) -> str:
        if len(data) > MAX_INLINE_BLOB_BYTES:
            self.reached.set()
            await self.back.wait()
        return await super().put(data)


def bench(desk: Desk, store: MemoryStore | None = None, *away: type[Member]) -> Bench:
    store = store or MemoryStore()
    return Bench(SlowLog(store, *away), MemoryBlobs(store), desk)


async def within(awaitable: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaitable, 20)


async def given_up(asking: asyncio.Task[Any]) -> None:
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


def long_reply(size: int) -> bytes:
    """A valid verdict under v1 of so many bytes."""
    scores = {"correct": 1.0, "efficiency": 1.0, "tidiness": 1.0}
    empty = json.dumps({"score": 1.4, "scores": scores, "why": ""}).encode()
    return empty[:-2] + b"x" * (size - len(empty)) + b'"}'


async def test_a_call_whose_judgment_gave_up_is_waited_for_and_found() -> None:
    """Its time was over, its trial was skipped, its run cancelled: it was sent, so it is kept."""
    desk = Desk(open_=False)
    judge = bench(desk)
    run = await judge.run()
    question = await judge.question(run)
    asking = asyncio.create_task(judge.ask(question))
    await within(desk.asked.get())
    await given_up(asking)
    again = asyncio.create_task(judge.ask(question))
    log = judge.log
    assert isinstance(log, SlowLog)
    while await within(log.answers.get()) != "held":
        pass
    desk.go_on.set()
    answer = await within(again)
    assert not answer.made and answer.reply.valid
    assert [answer.reply] == await judge.recorded(run)
    assert len(desk.calls) == 1


async def test_the_deadline_of_a_judgment_ends_the_judgment_and_not_the_call() -> None:
    desk = Desk(open_=False)
    judge = bench(desk)
    run = await judge.run(timeouts={"judge_s": 0.2})
    await judge.verified(run)
    assert await within(judge.judge(run)) == "timeout"
    desk.go_on.set()
    await eventually(lambda: judge.recorded(run))
    assert await within(judge.judge(run)) == "done"
    (judged,) = await judge.facts(run, ev.Judged)
    assert judged.memo == judged.bill and judged.bill.calls == 1
    assert len(desk.calls) == 1


async def test_giving_up_between_reply_and_commit_loses_nothing() -> None:
    """The deadline fires while the reply is being committed to a Postgres that is away."""
    desk = Desk()
    judge = bench(desk, None, Finish)
    log = judge.log
    assert isinstance(log, SlowLog)
    run = await judge.run()
    question = await judge.question(run)
    asking = asyncio.create_task(judge.ask(question))
    assert isinstance(await within(log.reached.get()), Finish)
    await given_up(asking)
    assert await judge.recorded(run) == []
    log.back.set()
    assert len(await eventually(lambda: judge.recorded(run))) == 1
    assert not (await within(judge.ask(question))).made
    assert len(desk.calls) == 1


@pytest.mark.parametrize("moved", ENDS, ids=lambda fact: type(fact).__name__)
async def test_a_run_that_is_paused_or_ends_meanwhile_still_gets_its_reply(moved: ev.Fact) -> None:
    desk = Desk(open_=False)
    judge = bench(desk)
    run = await judge.run()
    asking = asyncio.create_task(judge.ask(await judge.question(run)))
    await within(desk.asked.get())
    await judge.append(run, moved)
    desk.go_on.set()
    answer = await within(asking)
    assert answer.made and await judge.recorded(run) == [answer.reply]


async def test_a_claim_that_comes_through_when_nobody_waits_any_more_is_set_free() -> None:
    """Postgres was away when the judgment's time was over: no call is made for nobody."""
    desk = Desk()
    judge = bench(desk, None, calls_module.Claim)
    log = judge.log
    assert isinstance(log, SlowLog)
    log.back.set()
    run = await judge.run()
    question = await judge.question(run)
    while not log.reached.empty():
        log.reached.get_nowait()
    log.back.clear()
    asking = asyncio.create_task(judge.ask(question))
    await within(log.reached.get())
    await given_up(asking)
    log.back.set()
    row = call_work_key(run, question[1].key)

    async def free() -> bool:
        return row in log.store.work and log.store.work[row].incarnation is None

    await eventually(free)
    assert desk.calls == []
    assert (await within(judge.ask(question))).made
    assert desk.calls == [question[1].key]


@pytest.mark.parametrize("hangs", [False, True], ids=["full", "hung"])
async def test_a_long_reply_is_recorded_though_its_folder_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.setattr(calls_module, "_FOLDER_S", 0.05)
    store, desk = MemoryStore(), Desk()
    blobs = BrokenFolder(store)
    blobs.hangs = hangs
    judge = Bench(MemoryLog(store), blobs, desk)
    raw = long_reply(MAX_INLINE_BLOB_BYTES + 1)
    desk.replies = [raw]
    run = await judge.run()
    answer = await within(judge.ask(await judge.question(run)))
    assert answer.made and answer.reply.score == 1.4
    kept = await judge.blobs.get(answer.reply.reply)
    assert kept == raw[:MAX_INLINE_BLOB_BYTES], "cut, and reachable"


@pytest.mark.parametrize(
    "size", [MAX_INLINE_BLOB_BYTES, MAX_INLINE_BLOB_BYTES + 1, MAX_REPLY_BYTES]
)
@pytest.mark.parametrize("valid", [True, False])
async def test_a_reply_of_any_size_up_to_the_limit_is_kept_whole(size: int, valid: bool) -> None:
    desk = Desk()
    judge = bench(desk)
    raw = long_reply(size) if valid else b"8" * size
    assert len(raw) == size
    desk.replies = [raw]
    run = await judge.run()
    await within(judge.ask(await judge.question(run)))
    first = (await judge.recorded(run))[0]
    assert (first.valid, first.reply) == (valid, bytes_digest(raw))
    assert await judge.blobs.get(first.reply) == raw


async def test_invalid_replies_are_recorded_paid_and_end_the_attempt() -> None:
    desk = Desk()
    desk.replies = [b"8/10", b"9/10", b"10/10"]
    judge = bench(desk)
    run = await judge.run()
    question = await judge.question(run)
    with pytest.raises(AttemptFailedError, match="3 replies in a row"):
        await within(judge.ask(question))
    calls = await judge.recorded(run)
    assert [(call.valid, call.ordinal, call.score) for call in calls] == [
        (False, 0, None),
        (False, 1, None),
        (False, 2, None),
    ]
    assert all(call.cost_microusd > 0 for call in calls)
    assert [await judge.blobs.get(call.reply) for call in calls] == [b"8/10", b"9/10", b"10/10"]
    answer = await within(judge.ask(question))
    assert (answer.made, answer.reply.ordinal, len(desk.calls)) == (True, 3, 4)
    assert len(set(desk.calls)) == 4, "a provider that knows a key would repeat its invalid reply"


async def test_a_call_without_an_answer_is_the_same_call_to_its_provider() -> None:
    desk = Desk()
    desk.replies = [JudgeUnavailableError("broken off"), b"8/10", JudgeTimeoutError("late")]
    judge = bench(desk)
    answer = await within(judge.ask(await judge.question(await judge.run())))
    assert answer.made and len(desk.calls) == 4
    first, second, third, fourth = desk.calls
    assert first == second != third == fourth


async def test_an_invalid_reply_that_meets_a_postgres_that_is_away_is_recorded_too() -> None:
    desk = Desk()
    desk.replies = [b"8/10"]
    judge = bench(desk, None, Fail)
    log = judge.log
    assert isinstance(log, SlowLog)
    run = await judge.run()
    question = await judge.question(run)
    asking = asyncio.create_task(judge.ask(question))
    await within(log.reached.get())
    await given_up(asking)
    log.back.set()
    (call,) = await eventually(lambda: judge.recorded(run))
    assert await judge.blobs.get(call.reply) == b"8/10"


@pytest.mark.parametrize(
    "error", [JudgeUnavailableError("gone"), JudgeTimeoutError("slow")], ids=["gone", "slow"]
)
async def test_a_judge_that_does_not_answer_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(calls_module, "_FIRST_PAUSE_S", 0.0)
    desk = Desk()
    desk.replies = [error, error]
    judge = bench(desk)
    run = await judge.run()
    answer = await within(judge.ask(await judge.question(run)))
    assert answer.made and len(desk.calls) == 3
    started = await judge.facts(run, ev.JudgeCallStarted)
    assert len(started) == 3, "each may have been made: each shows"
    assert len(await judge.recorded(run)) == 1


async def test_a_refused_request_sets_the_call_free() -> None:
    desk = Desk()
    desk.replies = [JudgeRefusedError("the judge answered 401", 401)]
    judge = bench(desk)
    run = await judge.run()
    question = await judge.question(run)
    with pytest.raises(JudgeRefusedError):
        await within(judge.ask(question))
    assert (await within(judge.ask(question))).made


async def test_a_reply_that_comes_after_a_takeover_counts_as_lost_and_the_others_is_taken() -> None:
    """Its lease had lapsed: I8. The one that counts is the one on the log."""
    store, slow, quick = MemoryStore(), Desk(open_=False), Desk()
    one, other = bench(slow, store), bench(quick, store)
    run = await one.run()
    question = await one.question(run)
    asking = asyncio.create_task(one.ask(question))
    await within(slow.asked.get())
    await MemoryLog(store).void([one.log.incarnation])
    taken = await within(other.ask(question))
    slow.go_on.set()
    answer = await within(asking)
    assert (taken.made, answer.made) == (True, False)
    assert answer.reply == taken.reply
    assert len(await one.recorded(run)) == 1
    assert len(await one.facts(run, ev.JudgeCallStarted)) == 2, "one without a record: it shows"


async def test_a_process_that_stops_gives_up_what_is_out_and_records_what_came() -> None:
    store, out, back = MemoryStore(), Desk(open_=False), Desk()
    back.replies = [long_reply(MAX_INLINE_BLOB_BYTES + 1)]
    folder = SlowFolder(store)
    waiting, recording = bench(out, store), Bench(MemoryLog(store), folder, back)
    run, other = await waiting.run(), await waiting.run()
    question = await waiting.question(run)
    first = asyncio.create_task(waiting.ask(question))
    second = asyncio.create_task(recording.ask(await recording.question(other)))
    await within(out.asked.get())
    await within(folder.reached.wait())
    for task in (first, second):
        await given_up(task)
    closing = asyncio.create_task(recording.calls.close())
    await within(waiting.calls.close())
    row = store.work[call_work_key(run, question[1].key)]
    assert (row.incarnation, row.done) == (None, False), "free at once for who comes next"
    folder.back.set()
    await within(closing)
    assert len(await recording.recorded(other)) == 1


async def test_the_largest_reply_fits_an_event() -> None:
    names = [f"{n:02}" + "x" * 38 for n in range(32)]
    widest = -1.7976931348623157e-308
    criteria = tuple(Criterion(name=name, prompt="Tidy?", scale=(-1.0, 1.0)) for name in names)
    rubric = Rubric(name="r" * 40, scoring="holistic", criteria=criteria)
    desk = Desk()
    usage = {"prompt_tokens": MAX_TOKENS, "completion_tokens": MAX_TOKENS}
    reply = {"score": widest, "scores": dict.fromkeys(names, widest), "usage": usage}
    desk.replies = [json.dumps(reply).encode()]
    judge = bench(desk)
    run = await judge.run(rubric=rubric, judge={"model": "m" * 100})
    await judge.verified(run)
    assert await within(judge.judge(run)) == "done"
    for fact in await judge.facts(run, ev.JudgeCallRecorded, ev.Judged):
        assert len(ev.encode(fact)) < MAX_EVENT_BYTES
