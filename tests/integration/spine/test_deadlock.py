"""Closing work while others finish and claim it never closes a circle of locks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from support import facts as f
from support.logs import PostgresLedger, postgres_ledger
from support.stack import StackThread
from trialog.proto import events as ev
from trialog.proto.work import JUDGE, VERIFY, WorkName, keys_of_trial
from trialog.spine.log import Append, Claim, Finish


@pytest_asyncio.fixture
async def ledger(stack: StackThread) -> AsyncGenerator[PostgresLedger]:
    """A partition of the test's own."""
    async for found in postgres_ledger(stack):
        yield found


async def test_closing_appends_beside_finishes_and_claims(
    ledger: PostgresLedger, caplog: pytest.LogCaptureFixture
) -> None:
    driver, worker, judge = ledger.open(), ledger.open(), ledger.open()
    await ledger.begin(driver)

    async def live(trial: str, key: str, fence: int) -> None:
        """Take a held trial through its stages, as far as it is let."""
        verify = WorkName(ledger.run_id, trial, VERIFY).key
        recorded = ledger.event(f.trajectory(trial), held_ms=60_000)
        await worker.commit(Finish(key, fence, [recorded]))
        await worker.commit(Finish(verify, 1, [ledger.event(f.verified(trial))]))
        await judge.commit(Claim(WorkName(ledger.run_id, trial, JUDGE).key, 60_000))

    async def close(trials: list[str]) -> None:
        events = [ledger.event(ev.TrialCancelled(trial, 0)) for trial in trials]
        keys = [key for trial in trials for key in keys_of_trial(ledger.run_id, trial)]
        (await driver.commit(Append(events, closes=keys, partition=ledger.partition))).check()

    with caplog.at_level(logging.WARNING):
        for turn in range(8):
            trials = [f"s{turn}-p{p}-n0" for p in range(200)]
            held = [await ledger.held(worker, f.trial_requested(trial)) for trial in trials]
            lives = [live(t, key, fence) for t, (key, fence) in zip(trials, held, strict=True)]
            await asyncio.gather(*lives, close(trials))
    assert [r.getMessage() for r in caplog.records if "unavailable" in r.getMessage()] == []
    assert await driver.broken_link(ledger.partition, 0, 10**6) is None
