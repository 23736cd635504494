"""Giving work back, in memory and in Postgres: it is free at once, and nothing is counted."""

from __future__ import annotations

from support import facts as f
from support.logs import Ledger
from trialog.proto import events as ev
from trialog.spine.log import Append, Claim, Finish, GiveBack, Renew

TRIAL = "s0-p0-n0"
ASKED = f.trial_requested(TRIAL)


async def test_work_that_is_given_back_is_as_if_it_had_never_been_taken(ledger: Ledger) -> None:
    log, other = ledger.open(), ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    assert (await log.commit(GiveBack(key, fence))).answer == "ok"
    (offered,) = await log.open_work(ledger.partition, 0, 10)
    assert (offered.key, offered.held, offered.not_before) == (key, False, None)
    again = await other.commit(Claim(key, 60_000))
    counted = (again.failures, again.injected, again.lost, again.breakdowns)
    assert (again.answer, counted) == ("ok", (0, 0, 0, 0))
    assert again.fence > fence
    # The first holder has lost it (I8).
    for late in (GiveBack(key, fence), Renew(key, fence, 1000), Finish(key, fence)):
        assert (await log.commit(late)).answer == "lost"
    assert await ledger.recorded(log) == [ASKED]


async def test_work_of_a_paused_run_is_given_back_and_taken_after_the_resume(
    ledger: Ledger,
) -> None:
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    await ledger.append(log, ev.RunPaused(0))
    assert (await log.commit(GiveBack(key, fence))).ok
    assert (await log.commit(Claim(key, 1000))).answer == "refused"
    await ledger.append(log, ev.RunResumed(0))
    assert (await log.commit(Claim(key, 1000))).ok


async def test_a_retry_that_is_given_back_keeps_its_counts(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED, lease_ms=1)
    await ledger.lapse(key)
    loss = ledger.event(ev.TrialAttemptFailed(TRIAL, "generate", 0, "lost"))
    taken = await log.commit(Claim(key, 60_000, fence, [loss]))
    assert (await log.commit(GiveBack(key, taken.fence))).ok
    assert (await log.commit(Claim(key, 60_000))).lost == 1


async def test_closed_work_that_is_given_back_is_over(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    await log.commit(Append([], closes=[key]))
    assert (await log.commit(GiveBack(key, fence))).ok
    assert (await ledger.row(key))["done"]
    assert (await log.commit(Claim(key, 1000))).answer == "done"


async def test_done_work_is_not_given_back(ledger: Ledger) -> None:
    log = ledger.open()
    await ledger.begin(log)
    key, fence = await ledger.held(log, ASKED)
    await log.commit(Finish(key, fence, [ledger.event(f.trajectory(TRIAL))]))
    assert (await log.commit(GiveBack(key, fence))).answer == "lost"
    assert (await log.commit(Claim(key, 1000))).answer == "done"
