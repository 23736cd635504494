"""A judge under a budget: what it waits for, when it pauses the run, and that nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import golden
from support.judging import PRICES, TRIAL, TWIN, Bench, Desk
from trialog.judge import budget as budget_module
from trialog.judge.budget import exhausted, worst_cost
from trialog.judge.calls import Calls
from trialog.judge.clients import reply_of
from trialog.judge.errors import JudgeRefusedError, JudgeTimeoutError, JudgeUnavailableError
from trialog.judge.handlers import Handlers
from trialog.judge.replies import Prices
from trialog.judge.standin.answers import answer_to
from trialog.proto import events as ev
from trialog.spine.budget import NOTHING, Amount, Budget, Cost, Limits
from trialog.spine.consumer import Held, NotNowError
from trialog.spine.log import GiveBack
from trialog.spine.memory.blobs import MemoryBlobs
from trialog.spine.memory.log import MemoryLog
from trialog.spine.memory.store import MemoryStore

T = TypeVar("T")
# Small enough that what a call may cost is near what it does cost.
SHORT = {"max_tokens": 16}


def bench(desk: Desk, store: MemoryStore | None = None) -> Bench:
    store = store or MemoryStore()
    blobs = MemoryBlobs(store)
    judge = Bench(MemoryLog(store), blobs, desk)
    judge.calls = Calls(judge.log, blobs, desk, PRICES)
    judge.handlers = Handlers(judge.calls, blobs)
    return judge


async def within(awaitable: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaitable, 20)


async def judged(judge: Bench, run: str, trial: str) -> str:
    """Handle a judgment as the consumer does; return "done", or why it was given back."""
    held = await judge.held(run, trial)
    if isinstance(held, str):
        return held
    try:
        await judge.handlers.on_trial_verified(held)
    except NotNowError as error:
        (await judge.log.commit(GiveBack(held.name.key, held.fence))).check()
        return str(error)
    return "done"


async def two_trials(judge: Bench, **settings: Any) -> str:
    run = await judge.run(judge=SHORT, n_samples=2, **settings)
    for trial in (TRIAL, TWIN):
        await judge.verified(run, trial, like=trial)
    return run


async def budget(judge: Bench, run: str) -> Budget:
    found = await judge.log.budget(run)
    assert found is not None
    return found


async def test_a_run_at_its_limit_is_paused_with_the_reason_and_goes_on_with_more() -> None:
    desk = Desk()
    judge = bench(desk)
    run = await two_trials(judge, budget={"judge_calls": 1})
    assert await within(judged(judge, run, TRIAL)) == "done"
    reason = "budget.judge_calls: 1 of 1 are spent; resume with a higher budget"
    assert await within(judged(judge, run, TWIN)) == reason
    assert await judge.facts(run, ev.RunPaused) == [ev.RunPaused(0, reason)]
    assert await judged(judge, run, TWIN) == "refused", "nothing is claimed while it is paused"
    # With the same limits it is paused again at once, and once only.
    await judge.append(run, ev.RunResumed(0))
    assert await within(judged(judge, run, TWIN)) == reason
    assert await judge.facts(run, ev.RunPaused) == [ev.RunPaused(n, reason) for n in range(2)]
    await judge.append(run, ev.RunResumed(1, {"judge_calls": 2}))
    assert await within(judged(judge, run, TWIN)) == "done"
    assert len(desk.calls) == len(set(desk.calls)) == 2
    assert await judge.facts(run, ev.TrialAttemptFailed) == []
    assert (await judge.facts(run, ev.Judged))[-1].reward == golden.rewards("clean")[1]["reward"]


async def test_what_is_out_is_waited_for_before_the_run_is_paused() -> None:
    desk = Desk(open_=False)
    judge = bench(desk)
    run = await two_trials(judge, budget={"judge_calls": 1})
    first = asyncio.create_task(judged(judge, run, TRIAL))
    await within(desk.asked.get())
    second = asyncio.create_task(judged(judge, run, TWIN))
    done, _ = await asyncio.wait({second}, timeout=0.2)
    assert not done and await judge.facts(run, ev.RunPaused) == []
    desk.go_on.set()
    assert await within(first) == "done"
    assert "1 of 1 are spent" in await within(second)
    assert len(desk.calls) == 1


@pytest.mark.parametrize("unit", ["tokens", "usd"])
async def test_a_reply_that_costs_less_than_it_might_makes_room(unit: str) -> None:
    desk = Desk(open_=False)
    judge = bench(desk)
    probe = await judge.run(judge=SHORT)
    _, call = await judge.question(probe)
    worst = worst_cost(call.request, 16, PRICES)
    # Room for one call at its worst and a second's real cost, not for two at their worst.
    limit = {"tokens": worst.tokens * 3 // 2, "usd": worst.microusd * 1.5 / 1e6}[unit]
    run = await two_trials(judge, budget={unit: limit})
    first = asyncio.create_task(judged(judge, run, TRIAL))
    await within(desk.asked.get())
    second = asyncio.create_task(judged(judge, run, TWIN))
    done, _ = await asyncio.wait({second}, timeout=0.2)
    assert not done
    desk.go_on.set()
    assert await within(first) == await within(second) == "done"
    now = await budget(judge, run)
    spent = dict(zip(("calls", "tokens", "usd"), now.spent, strict=True))
    assert now.reserved == NOTHING and await judge.facts(run, ev.RunPaused) == []
    paid = await judge.recorded(run)
    assert spent["tokens"] == sum(one.prompt_tokens + one.completion_tokens for one in paid)
    assert spent["usd"] == sum(one.cost_microusd for one in paid)


async def test_waiting_for_room_takes_nothing_of_the_judgments_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is given back before its deadline, and the run is not paused: there may be room yet."""
    monkeypatch.setattr(budget_module, "_PATIENCE_S", 0.05)
    desk = Desk(open_=False)
    judge = bench(desk)
    run = await two_trials(judge, budget={"judge_calls": 1})
    first = asyncio.create_task(judged(judge, run, TRIAL))
    await within(desk.asked.get())
    assert "have reserved what is left" in await within(judged(judge, run, TWIN))
    assert await judge.facts(run, ev.RunPaused) == []
    desk.go_on.set()
    assert await within(first) == "done"


async def test_two_judges_that_find_the_end_at_once_pause_the_run_once() -> None:
    store, desk = MemoryStore(), Desk()
    one, other = bench(desk, store), bench(desk, store)
    run = await two_trials(one, budget={"judge_calls": 0})
    reasons = await within(asyncio.gather(judged(one, run, TRIAL), judged(other, run, TWIN)))
    assert all("0 of 0 are spent" in reason or "paused" in reason for reason in reasons)
    assert len(await one.facts(run, ev.RunPaused)) == 1 and desk.calls == []


@pytest.mark.parametrize("end", [ev.RunPaused(0), ev.RunCancelled(), ev.RunFailed("enough")])
async def test_a_judgment_in_hand_as_its_run_stops_is_given_back(end: ev.Fact) -> None:
    desk = Desk()
    judge = bench(desk)
    run = await judge.run()
    await judge.verified(run)
    held = await judge.held(run)
    assert isinstance(held, Held)
    await judge.append(run, end)
    with pytest.raises(NotNowError, match="paused or has ended"):
        await within(judge.handlers.on_trial_verified(held))
    assert (await judge.log.commit(GiveBack(held.name.key, held.fence))).ok
    assert desk.calls == [] and await judge.facts(run, ev.TrialAttemptFailed) == []
    if isinstance(end, ev.RunPaused):
        await judge.append(run, ev.RunResumed(0))
        assert await within(judged(judge, run, TRIAL)) == "done"


async def test_a_reply_that_comes_while_the_run_is_paused_is_recorded_and_judged() -> None:
    desk = Desk(open_=False)
    judge = bench(desk)
    run = await two_trials(judge, budget={"judge_calls": 2})
    judging = asyncio.create_task(judged(judge, run, TRIAL))
    await within(desk.asked.get())
    await judge.append(run, ev.RunPaused(0))
    desk.go_on.set()
    assert await within(judging) == "done"
    assert len(await judge.recorded(run)) == len(await judge.facts(run, ev.Judged)) == 1
    assert (await budget(judge, run)).spent.calls == 1


@pytest.mark.parametrize(
    ("error", "paid"),
    [
        (JudgeUnavailableError("connection refused", unpaid=True), False),
        (JudgeUnavailableError("broke off in the middle"), True),
        (JudgeTimeoutError("no reply in time"), True),
    ],
    ids=["never sent", "broken", "timeout"],
)
async def test_a_call_without_a_reply_is_paid_for_unless_it_was_never_made(
    monkeypatch: pytest.MonkeyPatch, error: Exception, paid: bool
) -> None:
    monkeypatch.setattr("trialog.judge.calls._FIRST_PAUSE_S", 0.0)
    desk = Desk()
    desk.replies = [error]
    judge = bench(desk)
    run = await judge.run(budget={"judge_calls": 5})
    question = await judge.question(run)
    reply = (await within(judge.ask(question))).reply
    worst = worst_cost(question[1].request, 1024, PRICES)
    known = Amount(1, reply.prompt_tokens + reply.completion_tokens, reply.cost_microusd)
    expected = known.plus(Amount(1, *worst)) if paid else known
    now = await budget(judge, run)
    assert (now.spent, now.reserved) == (expected, NOTHING)


async def test_a_refused_request_costs_nothing() -> None:
    desk = Desk()
    desk.replies = [JudgeRefusedError("the judge answered 401", 401)]
    judge = bench(desk)
    run = await judge.run(budget={"judge_calls": 5})
    with pytest.raises(JudgeRefusedError):
        await within(judge.ask(await judge.question(run)))
    now = await budget(judge, run)
    assert now.spent == now.reserved == NOTHING


async def test_invalid_replies_are_paid_for_and_come_to_the_limit() -> None:
    desk = Desk()
    desk.replies = [b"no verdict", b"no verdict"]
    judge = bench(desk)
    run = await judge.run(budget={"judge_calls": 2})
    with pytest.raises(NotNowError, match="2 of 2 are spent"):
        await within(judge.ask(await judge.question(run)))
    assert len(desk.calls) == 2 and len(await judge.recorded(run)) == 2


async def test_a_process_that_stops_with_a_call_out_may_have_been_billed() -> None:
    desk = Desk(open_=False)
    judge = bench(desk)
    run = await judge.run(budget={"judge_calls": 5})
    question = await judge.question(run)
    asking = asyncio.create_task(judge.ask(question))
    await within(desk.asked.get())
    asking.cancel()
    await asyncio.wait([asking])
    await within(judge.calls.close())
    worst = worst_cost(question[1].request, 1024, PRICES)
    assert (await budget(judge, run)).spent == Amount(1, *worst)


def test_the_reason_names_the_limit_what_is_spent_and_what_to_do() -> None:
    def reason(limits: Limits, spent: Amount, worst: Cost = Cost(1340, 16_380)) -> str | None:  # noqa: B008 - a tuple
        return exhausted(Budget(limits, spent, NOTHING, "running", 0), worst)

    assert reason(Limits(18), Amount(18, 0, 0)) == (
        "budget.judge_calls: 18 of 18 are spent; resume with a higher budget"
    )
    assert reason(Limits(tokens=1530), Amount(3, 255, 0)) == (
        "budget.tokens: 255 of 1530 are spent and the next call may take 1340; "
        "resume with a higher budget"
    )
    assert reason(Limits(microusd=2_500_000), Amount(3, 255, 2_490_000)) == (
        "budget.usd: 2.49 of 2.5 is spent and the next call may cost 0.01638; "
        "resume with a higher budget"
    )
    assert reason(Limits(microusd=0), Amount()) is not None
    assert reason(Limits(1, 1340, 16_380), Amount()) is None, "exactly the limit is within it"
    assert reason(Limits(), Amount(10**6, 10**9, 10**12)) is None


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=200)


@given(TEXT, st.integers(1, 4096), st.floats(0, 1000), st.floats(0, 1000))
def test_no_reply_that_keeps_to_its_limits_costs_more_than_the_worst(
    prompt: str, max_tokens: int, prompt_usd: float, completion_usd: float
) -> None:
    """A token is at least a byte of what is sent, and a reply is no longer than it may be."""
    prompt *= 50
    request = {
        "model": {"model": "m", "temperature": 0.0, "max_tokens": max_tokens},
        "criterion": {"name": "style", "prompt": prompt},
        "trajectory": {"turns": [], "answer": None, "files": []},
    }
    prices = Prices(prompt_usd, completion_usd)
    worst = worst_cost(request, max_tokens, prices)
    sent = len(prompt.encode())
    most = b'{"score": 1, "scores": {}, "usage": {"prompt_tokens": %d, "completion_tokens": %d}}'
    for raw in (most % (sent, max_tokens), answer_to(request)):
        reply = reply_of(request, raw, prices=prices, latency_ms=1.0)
        if reply.completion_tokens <= max_tokens:
            assert reply.prompt_tokens + reply.completion_tokens <= worst.tokens
            assert reply.cost_microusd <= worst.microusd
