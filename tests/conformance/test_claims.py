"""Claims in memory and in Postgres: every verdict that a piece of work can have."""

from __future__ import annotations

import pytest
from support import facts as f
from support.logs import Ledger
from trialog.proto import events as ev
from trialog.proto.canonical import bytes_digest
from trialog.proto.work import call_work_key
from trialog.spine.log import (
    Append,
    Claim,
    ClaimLostError,
    Fail,
    Finish,
    NewWork,
    Release,
    Renew,
)

TRIAL, TWIN = "s0-p0-n0", "s0-p1-n0"
ASKED, TRIED = f.trial_requested(TRIAL), f.trajectory(TRIAL)


def failed(n: int = 0, failure: str = "agent") -> ev.TrialAttemptFailed:
    return ev.TrialAttemptFailed(TRIAL, "generate", n, failure, failure == "injected")


@pytest.mark.parametrize(
    "fact",
    [
        ev.WorldRequested("w0", "key"),
        ASKED,
        TRIED,
        f.verified(TRIAL),
        f.step_requested(),
    ],
    ids=["build_world", "generate", "verify", "judge", "train_step"],
)
async def test_work_of_every_kind_is_offered_with_its_fact_and_done_once(
    ledger: Ledger, fact: ev.Fact
) -> None:
    log, other = ledger.open(), ledger.open()
    await ledger.begin(log)
    position = (await ledger.append(log, fact)).result
    key = ledger.key(fact)
    (offered,) = await log.open_work(ledger.partition, 0, 10)
    assert (offered.key, offered.position, offered.held) == (key, position, False)
    assert (offered.run_id, offered.run_state) == (ledger.run_id, "running")
    claim = await log.commit(Claim(key, 60_000))
    assert (claim.answer, claim.fence, claim.failures, claim.lost) == ("ok", 1, 0, 0)
    assert (await other.commit(Claim(key, 60_000))).answer == "held"
    assert (await log.open_work(ledger.partition, 0, 10))[0].held
    done = await log.commit(Finish(key, 1, [ledger.event(ev.RunPaused(0))]))
    assert (done.answer, done.result) == ("ok", (position or 0) + 1)
    again = await other.commit(Claim(key, 60_000))
    assert (again.answer, again.result) == ("done", done.result)
    assert await log.open_work(ledger.partition, 0, 10) == []


async def test_facts_that_offer_nothing_offer_nothing(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log, ev.WorldBuilt("w0", "key", "d"), f.step_applied(), f.judged(TRIAL))
    await log.commit(Append([ledger.event(TRIED, offered=False)]))
    assert await log.open_work(ledger.partition, 0, 10) == []
    assert (await log.commit(Claim(ledger.key(TRIED), 1000))).answer == "unknown"


async def test_only_the_holder_finishes_fails_releases_and_renews(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    for member in (
        Finish(key, fence + 1, [ledger.event(TRIED)]),
        Fail(key, fence - 1, [ledger.event(failed())]),
        Release(key, fence + 1),
        Renew(key, fence + 1, 1000),
        Finish("no/such/work", 1, [ledger.event(TRIED)]),
        Renew("no/such/work", 1, 1000),
    ):
        verdict = await log.commit(member)
        assert verdict.answer == "lost", member
        with pytest.raises(ClaimLostError):
            verdict.check()
    assert await ledger.recorded(log) == [ASKED]
    assert (await log.commit(Finish(key, fence, [ledger.event(TRIED)]))).ok


async def test_a_finish_sent_again_finds_its_own_work_done(ledger: Ledger) -> None:
    """After a broken connection nobody knows whether the first one arrived."""
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    finish = Finish(key, fence, [ledger.event(TRIED)], [b"once"])
    first, second = await log.commit(finish), await log.commit(finish)
    assert (first.answer, second.answer) == ("ok", "ok")
    assert first.result == second.result == 3
    assert (await log.commit(Claim(key, 1000))).result == 3
    assert await ledger.recorded(log) == [ASKED, TRIED]
    assert await ledger.holds_blob(bytes_digest(b"once"))
    for late in (Fail(key, fence), Release(key, fence), Renew(key, fence, 1000)):
        assert (await log.commit(late)).answer == "lost"
    assert (await ledger.row(key))["done"]


async def test_failures_await_an_answer_and_are_counted_injected_ones_apart(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    fail = Fail(key, fence, [ledger.event(failed(0, "injected"))], injected=True)
    assert (await log.commit(fail)).answer == "ok"
    assert (await log.commit(fail)).answer == "lost"
    assert (await log.commit(Renew(key, fence, 1000))).answer == "lost"
    assert (await log.commit(Claim(key, 60_000))).answer == "undecided"
    assert await log.open_work(ledger.partition, 0, 10) == []
    await ledger.append(log, ev.TrialRetryScheduled(TRIAL, "generate", 0, 0, 0))
    second = await log.commit(Claim(key, 60_000))
    assert (second.answer, second.failures, second.injected) == ("ok", 1, 1)
    assert second.fence > fence
    await log.commit(Fail(key, second.fence, [ledger.event(failed(1))]))
    await ledger.append(log, ev.TrialRetryScheduled(TRIAL, "generate", 1, 0, 0))
    third = await log.commit(Claim(key, 60_000))
    assert (third.failures, third.injected, third.lost) == (2, 1, 0)


async def test_a_retry_is_not_claimed_early(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    await log.commit(Fail(key, fence, [ledger.event(failed())]))
    far_ms = 10**13
    await ledger.append(log, ev.TrialRetryScheduled(TRIAL, "generate", 0, far_ms, 0))
    assert (await log.commit(Claim(key, 1000))).answer == "early"
    (offered,) = await log.open_work(ledger.partition, 0, 10)
    assert offered.position == 4
    assert offered.not_before is not None
    assert offered.not_before.timestamp() * 1000 == far_ms
    await ledger.append(log, ev.TrialRetryScheduled(TRIAL, "generate", 1, 0, 0))
    assert (await log.commit(Claim(key, 1000))).answer == "ok"


async def test_a_lapsed_lease_is_taken_over_with_the_loss_as_a_fact(ledger: Ledger) -> None:
    """I8: in one transaction, and the old holder cannot record any more."""
    log, other = ledger.open(), ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED, lease_ms=1)
    await ledger.lapse(key)
    (offered,) = await log.open_work(ledger.partition, 0, 10)
    assert (offered.held, offered.expired) == (True, True)
    stale = await other.commit(Claim(key, 60_000))
    assert (stale.answer, stale.fence, stale.lost) == ("stale", fence, 0)
    assert (await other.commit(Claim(key, 60_000, expect=fence + 1))).answer == "stale"
    loss = ledger.event(failed(0, "lost"))
    taken = await other.commit(Claim(key, 60_000, fence, [loss]))
    assert (taken.answer, taken.fence, taken.lost) == ("ok", fence + 1, 1)
    assert (await ledger.row(key))["incarnation"] == other.incarnation
    assert (await log.commit(Finish(key, fence, [ledger.event(TRIED)]))).answer == "lost"
    assert (await log.commit(Claim(key, 60_000, fence, [loss]))).answer == "held"
    assert await ledger.recorded(log) == [ASKED, failed(0, "lost")]


async def test_a_takeover_whose_fact_is_refused_takes_nothing(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log, failed(0, "lost"))
    key, fence = await ledger.held(log, ASKED, lease_ms=1)
    await ledger.lapse(key)
    loss = ledger.event(ev.TrialAttemptFailed(TRIAL, "generate", 0, "lost", worker="another"))
    assert (await log.commit(Claim(key, 60_000, fence, [loss]))).answer == "different"
    row = await ledger.row(key)
    assert (row["fence"], row["lost"]) == (fence, 0)


async def test_work_that_was_set_free_meanwhile_is_not_taken_over(ledger: Ledger) -> None:
    """Its holder came back between the look and the takeover: nobody was lost."""
    log, other = ledger.open(), ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED, lease_ms=1)
    await ledger.lapse(key)
    assert (await other.commit(Claim(key, 60_000))).answer == "stale"
    await log.commit(Fail(key, fence, [ledger.event(failed())]))
    loss = ledger.event(failed(0, "lost"))
    assert (await other.commit(Claim(key, 60_000, fence, [loss]))).answer == "stale"
    assert await ledger.recorded(log) == [ASKED, failed()]


async def test_a_renewal_outlives_the_lease_and_saves_a_lapsed_one(ledger: Ledger) -> None:
    log, other = ledger.open(), ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED, lease_ms=1)
    await ledger.lapse(key)
    assert (await log.commit(Renew(key, fence, 60_000))).answer == "ok"
    assert (await other.commit(Claim(key, 60_000))).answer == "held"


async def test_the_leases_of_the_gone_end_at_once(ledger: Ledger) -> None:
    log, other = ledger.open(), ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    twin, _ = await ledger.held(other, f.trial_requested(TWIN))
    await ledger.void(log.incarnation)
    assert (await other.commit(Claim(key, 60_000))).answer == "stale"
    assert (await log.commit(Claim(twin, 60_000))).answer == "held"
    # One that was thought gone and lives keeps its work, if it is the first to say so.
    assert (await log.commit(Renew(key, fence, 60_000))).ok


async def test_a_stage_is_held_from_the_transaction_that_offers_it(ledger: Ledger) -> None:
    log, other = ledger.open(), ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    await log.commit(Finish(key, fence, [ledger.event(TRIED, held_ms=60_000)]))
    verify = ledger.key(TRIED)
    assert (await other.commit(Claim(verify, 60_000))).answer == "held"
    row = await ledger.row(verify)
    assert (row["incarnation"], row["fence"]) == (log.incarnation, 1)
    assert (await log.commit(Finish(verify, 1, [ledger.event(f.verified(TRIAL))]))).ok


async def test_closed_work_is_not_claimed_and_its_holder_is_told(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log, f.trial_requested(TWIN))
    free, (key, fence) = ledger.key(f.trial_requested(TWIN)), await ledger.held(log, ASKED)
    end = ledger.event(ev.TrialSkipped(TRIAL, 0, "step_deadline"))
    await log.commit(Append([end], closes=[key, free, "no/such/work"]))
    assert (await log.commit(Claim(free, 1000))).answer == "done"
    assert (await log.commit(Claim(key, 1000))).answer == "done"
    renewed = await log.commit(Renew(key, fence, 60_000))
    assert (renewed.answer, renewed.ok) == ("closed", True)
    assert [work.key for work in await log.open_work(ledger.partition, 0, 10)] == [key]
    # What was paid for still records.
    paid = ledger.event(TRIED, offered=False)
    assert (await log.commit(Finish(key, fence, [paid]))).answer == "ok"
    assert await log.open_work(ledger.partition, 0, 10) == []


@pytest.mark.parametrize("how", ["fail", "release"])
async def test_closed_work_that_is_set_free_is_over(ledger: Ledger, how: str) -> None:
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    await log.commit(Append([], closes=[key]))
    member = Fail(key, fence) if how == "fail" else Release(key, fence)
    assert (await log.commit(member)).ok
    assert (await ledger.row(key))["done"]


async def test_closing_what_is_done_changes_nothing(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    result = (await log.commit(Finish(key, fence, [ledger.event(TRIED)]))).result
    await log.commit(Append([], closes=[key]))
    assert (await log.commit(Claim(key, 1000))).result == result


async def test_breakdowns_are_counted_and_the_dead_are_reopened(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    assert (await log.commit(Release(key, fence))).ok
    claim = await log.commit(Claim(key, 60_000))
    assert (claim.breakdowns, claim.failures, claim.lost) == (1, 0, 0)
    dead = ev.DeliveryDeadLettered(key, "trial", 0, 2, "no such type")
    assert (await log.commit(Release(key, claim.fence, [ledger.event(dead)], dead=True))).ok
    assert (await log.commit(Claim(key, 60_000))).answer == "done"
    assert await log.open_work(ledger.partition, 0, 10) == []
    (shown,) = await log.dead_work(ledger.run_id)
    assert (shown.key, shown.kind, shown.breakdowns) == (key, "trial", 2)
    assert await log.reopen([key, "no/such/work"]) == [key]
    again = await log.commit(Claim(key, 60_000))
    assert (again.answer, again.breakdowns) == ("ok", 2)
    assert await log.dead_work(ledger.run_id) == []
    assert await ledger.recorded(log) == [ASKED, dead]


async def test_a_call_is_claimed_once_in_its_tree(ledger: Ledger) -> None:
    """I4: the claim brings the work into being, and JudgeCallStarted comes with it."""
    log, other = ledger.open(), ledger.open()
    await ledger.begin(log)
    key = call_work_key(ledger.run_id, "c")

    def started(fence: int) -> ev.JudgeCallStarted:
        return ev.JudgeCallStarted(TRIAL, "c", fence, "all", "model")

    def claim(expect: int) -> Claim:
        work = NewWork("call", ledger.run_id)
        return Claim(key, 60_000, expect, [ledger.event(started(expect + 1))], work)

    first = await log.commit(claim(0))
    assert (first.answer, first.fence) == ("ok", 1)
    assert (await other.commit(claim(0))).answer == "held"
    await log.commit(Fail(key, first.fence))
    stale = await other.commit(claim(first.fence))
    assert stale.answer == "stale"
    second = await other.commit(claim(stale.fence))
    assert second.ok
    invalid = f.judge_call(TRIAL, 1, valid=False, score=None, reply=bytes_digest(b"8/10"))
    await other.commit(Fail(key, second.fence, [ledger.event(invalid)], blobs=[b"8/10"]))
    assert await ledger.holds_blob(bytes_digest(b"8/10")), "what was paid for is kept"
    third = await log.commit(claim(second.fence + 1))
    assert (third.answer, third.failures) == ("ok", 2)
    reply = f.judge_call(TRIAL, 2)
    done = await log.commit(Finish(key, third.fence, [ledger.event(reply)]))
    assert (await other.commit(claim(0))).answer == "done"
    assert (await other.commit(claim(0))).result == done.result
    facts = await ledger.recorded(log)
    assert facts == [started(1), started(second.fence), invalid, started(third.fence), reply]
    # The sweeper leaves calls alone: whoever judges the trial comes back for them.
    assert await log.open_work(ledger.partition, -1, 10) == []


async def test_only_a_holder_is_told_that_it_holds(ledger: Ledger) -> None:
    log, other = ledger.open(), ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    assert await log.holds(key, fence)
    assert not await log.holds(key, fence + 1)
    assert not await other.holds(key, fence)
    assert not await log.holds("no/such/work", 1)
    await log.commit(Finish(key, fence, [ledger.event(TRIED)]))
    assert not await log.holds(key, fence)


async def test_a_call_of_an_unknown_run_cannot_be_claimed(ledger: Ledger) -> None:
    log = ledger.open()
    work = NewWork("call", "r-zzzzzzzzzzzzzzzz")
    key = call_work_key("r-zzzzzzzzzzzzzzzz", ledger.run_id)
    assert (await log.commit(Claim(key, 1000, 0, (), work))).answer == "unknown"


async def test_a_run_that_is_paused_or_ended_claims_nothing_new(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log, f.trial_requested(TWIN))
    key, fence = await ledger.held(log, ASKED)
    twin = ledger.key(f.trial_requested(TWIN))
    assert await ledger.run_state() == "running"
    await ledger.append(log, ev.RunPaused(0))
    assert await ledger.run_state() == "paused"
    assert (await log.commit(Claim(twin, 1000))).answer == "refused"
    assert (await log.commit(Renew(key, fence, 1000))).answer == "ok"
    assert (await log.commit(Finish(key, fence, [ledger.event(TRIED)]))).answer == "ok"
    await ledger.append(log, ev.RunResumed(0))
    assert (await log.commit(Claim(twin, 60_000))).answer == "ok"
    await ledger.append(log, ev.RunCancelled("enough"))
    assert await ledger.run_state() == "ended"
    assert (await log.commit(Claim(ledger.key(TRIED), 1000))).answer == "refused"
    await ledger.append(log, ev.RunResumed(1))
    assert await ledger.run_state() == "ended"
