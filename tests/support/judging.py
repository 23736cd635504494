"""A judge's bench: runs, verified trials and claims of judgments, without a bus."""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

from nats.aio.msg import Msg
from support import facts as f
from support import golden
from support.logs import AnyLog
from trialog.judge.calls import Answer, Calls
from trialog.judge.clients import JudgeClient, JudgeReply, reply_of
from trialog.judge.handlers import Handlers
from trialog.judge.replies import Prices
from trialog.judge.scoring import Call, request_of
from trialog.judge.standin.answers import answer_to
from trialog.proto import events as ev
from trialog.proto.canonical import canonical, digest
from trialog.proto.ids import parse_trial_id, run_id_from
from trialog.proto.keys import model_of
from trialog.proto.work import JUDGE, WorkName
from trialog.spine.blobs import BlobStore
from trialog.spine.consumer import AttemptFailedError, Held
from trialog.spine.log import Append, Claim, Fail, new_event
from trialog.spine.runs import Runs

TRIAL, TWIN = "s0-p0-n0", "s0-p0-n1"
PRICES = Prices(prompt_usd_per_mtok=3.0, completion_usd_per_mtok=15.0)


class Desk:
    """A judge client whose replies the test lets go one by one, and counts."""

    def __init__(self, *, open_: bool = True) -> None:
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.calls: list[str] = []
        self.go_on = asyncio.Event()
        self.replies: list[bytes | Exception] = []
        if open_:
            self.go_on.set()

    async def call(
        self, request: dict[str, Any], *, idempotency_key: str, latency_s: float, timeout_s: float
    ) -> JudgeReply:
        """See JudgeClient; what is first in ``replies`` is answered, else the formula's reply."""
        self.calls.append(idempotency_key)
        self.asked.put_nowait(idempotency_key)
        await self.go_on.wait()
        reply = self.replies.pop(0) if self.replies else answer_to(request)
        if isinstance(reply, Exception):
            raise reply
        return reply_of(request, reply, prices=PRICES, latency_ms=1.0)

    async def close(self) -> None:
        """See JudgeClient."""


class Bench:
    """A judge's process: its own log, calls and handlers over a shared store."""

    def __init__(
        self, log: AnyLog, blobs: BlobStore, client: JudgeClient, partition: int = 0
    ) -> None:
        self.log, self.blobs, self.client, self.partition = log, blobs, client, partition
        self.calls = Calls(log, blobs, client)
        self.handlers = Handlers(self.calls, blobs)
        self.runs = Runs(log)

    async def append(self, run_id: str, *facts: ev.Fact) -> int:
        """Put facts of a run on the log; return the last one's position."""
        events = [new_event(run_id, fact, partition=self.partition) for fact in facts]
        position = (await self.log.commit(Append(events))).check().result
        assert position is not None
        return position

    async def run(self, parent: str | None = None, **settings: Any) -> str:
        """Ask for a run, or for a fork of one, and return its id."""
        run_id = run_id_from(os.urandom(16))
        request = f.run_requested(run_id, **settings)
        if parent is not None:
            above = (await self.runs.get(parent)).request
            seen = ev.Provenance(parent, await self.log.end(self.partition))
            request = ev.RunRequested(
                request.spec,
                above.root,
                request.initial_weights,
                parent=parent,
                lineage=[seen, *above.lineage],
            )
        await self.append(run_id, request)
        return run_id

    async def verified(self, run_id: str, trial_id: str = TRIAL, like: str = TRIAL) -> None:
        """Put a verified trial on the log, with the golden trajectory of a trial."""
        trajectory = golden.trajectory("clean", like)
        blob = await self.blobs.put(canonical(trajectory))
        fact = ev.TrialVerified(
            trial_id,
            parse_trial_id(trial_id).step,
            "verify-key",
            True,
            3,
            digest(trajectory),
            blob,
            len(trajectory["turns"]),
        )
        await self.append(run_id, fact)

    async def held(self, run_id: str, trial_id: str = TRIAL) -> Held | str:
        """Claim a verified trial's judgment; return it held, or the verdict's answer."""
        name = WorkName(run_id, trial_id, JUDGE)
        verdict = await self.log.commit(Claim(name.key, 30_000))
        if not verdict.ok:
            return verdict.answer
        event = await self.log.at_slot(run_id, f"verified:{trial_id}")
        assert event is not None
        return Held(
            name,
            await self.runs.get(run_id),
            event.fact(),
            verdict.fence,
            verdict.failures,
            verdict.injected,
            30_000,
            self.log,
            cast("Msg", None),  # only the consumer looks at it
            "tester",
        )

    async def question(self, run_id: str, trial_id: str = TRIAL) -> tuple[Held, Call]:
        """Put a verified trial on the log and return its judgment, held, with its first call."""
        await self.verified(run_id, trial_id)
        held = await self.held(run_id, trial_id)
        assert isinstance(held, Held) and isinstance(held.origin, ev.TrialVerified)
        asked, key = held.run.keys.calls(held.origin)[0]
        evidence = await self.handlers._evidence(held.origin, needed=True)
        request = {"model": model_of(held.run.spec), **request_of(asked, evidence)}
        return held, Call(asked.criterion, key, request)

    async def ask(self, question: tuple[Held, Call]) -> Answer:
        """Ask for a call's reply."""
        held, call = question
        return await self.calls.ask(held, held.name.subject, call)

    async def judge(self, run_id: str, trial_id: str = TRIAL) -> str:
        """Handle a verified trial as the consumer does, its retry scheduled at once; return how
        that ended: done, a failure, or why it could not be claimed."""
        held = await self.held(run_id, trial_id)
        if isinstance(held, str):
            return held
        try:
            await self.handlers.on_trial_verified(held)
        except AttemptFailedError as error:
            fact = ev.TrialAttemptFailed(
                trial_id, JUDGE, held.failures, error.failure, error.failure == "injected"
            )
            fail = Fail(held.name.key, held.fence, [held.event(fact)], fact.injected)
            (await self.log.commit(fail)).check()
            await self.append(run_id, ev.TrialRetryScheduled(trial_id, JUDGE, held.failures, 0, 0))
            return error.failure
        return "done"

    async def facts(self, run_id: str, *kinds: type[ev.Fact]) -> list[Any]:
        """Return a run's facts of some kinds, in order."""
        found = [event.fact() for event in await self.log.read_run(run_id, 0, 10_000)]
        return [fact for fact in found if isinstance(fact, kinds)]

    async def recorded(self, run_id: str) -> list[ev.JudgeCallRecorded]:
        """Return a run's judge calls, in order."""
        return await self.facts(run_id, ev.JudgeCallRecorded)


def bill_of(*calls: ev.JudgeCallRecorded) -> ev.Bill:
    """Add up what calls cost."""
    return ev.Bill(
        len(calls),
        sum(call.prompt_tokens for call in calls),
        sum(call.completion_tokens for call in calls),
        sum(call.cost_microusd for call in calls),
    )
