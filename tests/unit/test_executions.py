"""Two executions of one trial are one action: where, when, by whom and in which attempt it was done
is on its facts and in none of its keys and digests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from msgspec.structs import asdict
from nats.aio.msg import Msg
from support import facts as f
from support.judging import PRICES
from trialog.judge.calls import Calls
from trialog.judge.clients import JudgeReply, reply_of
from trialog.judge.handlers import Handlers as JudgeHandlers
from trialog.judge.replies import Prices
from trialog.judge.standin.answers import answer_to
from trialog.proto import events as ev
from trialog.proto.ids import run_id_from
from trialog.proto.policy import initial_weights
from trialog.proto.work import work_of
from trialog.sandbox.memory import MemoryProvider
from trialog.sandbox.reference_trials import ReferenceTrials
from trialog.spine.consumer import Held
from trialog.spine.log import Append, Claim, Fail, NewEvent, new_event
from trialog.spine.memory.blobs import MemoryBlobs
from trialog.spine.memory.log import MemoryLog
from trialog.spine.memory.store import MemoryStore
from trialog.spine.runs import Runs

TRIAL = "s0-p0-n0"


@dataclass
class Desk:
    """A judge that takes a time of its own for the formula's reply."""

    latency_ms: float
    calls: int = 0

    async def call(
        self, request: dict[str, Any], *, idempotency_key: str, latency_s: float, timeout_s: float
    ) -> JudgeReply:
        self.calls += 1
        prices = prices_of(self.latency_ms)
        return reply_of(request, answer_to(request), prices=prices, latency_ms=self.latency_ms)

    async def close(self) -> None: ...


def prices_of(factor: float) -> Prices:
    """Return prices that differ from one desk to the other."""
    return Prices(PRICES.prompt_usd_per_mtok * factor, PRICES.completion_usd_per_mtok)


class Place:
    """A run that a machine of its own executes: another log, worker, clock and judge."""

    def __init__(
        self, worker: str, latency_ms: float, *, attempts: int = 1, **settings: Any
    ) -> None:
        self.worker, self.attempts = worker, attempts
        self.run_id = run_id_from(worker.encode())
        self.settings = settings
        self.log = MemoryLog(MemoryStore(), len(worker))
        self.blobs = MemoryBlobs(self.log.store)
        self.runs = Runs(self.log)
        self.sandbox = ReferenceTrials({"bubblewrap": MemoryProvider()}, self.blobs)
        self.judge = JudgeHandlers(Calls(self.log, self.blobs, Desk(latency_ms)), self.blobs)

    async def execute(self) -> dict[str, Any]:
        """Build the world, try, verify and judge; return the facts by type."""
        request = f.run_requested(self.run_id, **self.settings)
        await self.append(request)
        weights = await self.blobs.put(initial_weights(1))
        keys = (await self.runs.get(self.run_id)).keys
        asked = ev.WorldRequested("w0", keys.world("w0"))
        await self.sandbox.on_world_requested(await self.held(asked))
        built = await self.fact("world:w0")
        key = keys.generate(TRIAL, built.digest, weights)
        trial = ev.TrialRequested(TRIAL, 0, "w0", built.digest, 0, weights, key)
        await self.sandbox.on_trial(await self.held(trial))
        await self.judge.on_trial_verified(await self.held(await self.fact(f"verified:{TRIAL}")))
        facts = [event.fact() for event in await self.log.read_run(self.run_id, 0, 100)]
        return {type(fact).__name__: fact for fact in facts}

    async def append(self, *facts: ev.Fact) -> None:
        """Put facts of the run on the log, unless they are there."""
        events = [new_event(self.run_id, fact) for fact in facts]
        (await self.log.commit(Append(events))).check()

    async def fact(self, slot: str) -> Any:
        """Return what fills a slot."""
        event = await self.log.at_slot(self.run_id, slot)
        assert event is not None
        return event.fact()

    async def held(self, fact: ev.Fact) -> Held:
        """Offer a fact's work and claim it; before the last attempt others fail."""
        await self.append(fact)
        name = work_of(self.run_id, fact)
        assert name is not None
        for n in range(self.attempts - 1):
            claim = (await self.log.commit(Claim(name.key, 30_000))).check()
            failed = ev.TrialAttemptFailed(name.subject, name.stage, n, "infrastructure")
            event: NewEvent = new_event(self.run_id, failed)
            (await self.log.commit(Fail(name.key, claim.fence, [event]))).check()
            await self.append(ev.TrialRetryScheduled(name.subject, name.stage, n, 0, 0))
        claim = (await self.log.commit(Claim(name.key, 30_000))).check()
        return Held(
            name,
            await self.runs.get(self.run_id),
            fact,
            claim.fence,
            claim.failures,
            claim.injected,
            30_000,
            self.log,
            cast("Msg", None),  # only the consumer looks at it
            self.worker,
        )


RUBRICS: dict[str, Any] = {
    "holistic": "v1",
    "per_criterion": {
        "name": "mine",
        "criteria": [{"name": "style", "prompt": "Tidy?"}, {"name": "right", "check": "correct"}],
    },
    "check": "instant",
}
# By type of fact: what may differ between two executions of one trial. All else is the same.
MAY_DIFFER = {
    "WorldBuilt": set[str](),
    "TrialRequested": set[str](),
    "TrajectoryRecorded": {"worker"},
    "TrialVerified": set[str](),
    "JudgeCallRecorded": {"latency_ms", "cost_microusd", "reply"},
    "Judged": {"bill"},
}


@pytest.mark.parametrize("rubric", RUBRICS)
async def test_two_executions_of_one_trial_are_one_action(rubric: str) -> None:
    here = Place("sandbox-1", 1.0, rubric=RUBRICS[rubric], tool_latency_s=0)
    there = Place(
        "sandbox-of-another-host-2",
        977.0,
        attempts=3,
        rubric=RUBRICS[rubric],
        tool_latency_s=0.001,
        judge_latency_s=0.0,
        labels={"team": "b"},
        timeouts={"trial_s": 7.0},
        n_steps=5,
    )
    one, other = await here.execute(), await there.execute()
    assert one["TrajectoryRecorded"].worker != other["TrajectoryRecorded"].worker
    if rubric != "check":
        assert one["JudgeCallRecorded"].latency_ms != other["JudgeCallRecorded"].latency_ms
        assert one["Judged"].bill != other["Judged"].bill
    for kind, may_differ in MAY_DIFFER.items():
        if kind not in one and rubric == "check":
            continue
        differ = {
            name for name, value in asdict(one[kind]).items() if asdict(other[kind])[name] != value
        }
        assert differ <= may_differ, kind
