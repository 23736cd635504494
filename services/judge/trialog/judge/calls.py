"""Judge calls that are made once: claimed in the tree of runs, recorded the moment they return.

    claim (JudgeCallStarted comes with it) -> call -> finish {JudgeCallRecorded}

Claim, call and record are a task of their own. Who asked may give up meanwhile (its time is over,
its trial was skipped, its run cancelled): what was sent is waited for and kept all the same, and a
retry or another run finds it. Between reply and record there is nothing that can fail but this
process: if it dies there the call is made again, and shows as a JudgeCallStarted without a record
(docs/invariants.md, I4; docs/decisions/0025).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from trialog.judge.budget import Room, worst_cost
from trialog.judge.clients import JudgeClient, JudgeReply
from trialog.judge.errors import JudgeCallError, JudgeTimeoutError, JudgeUnavailableError
from trialog.judge.replies import Prices
from trialog.judge.scoring import Call
from trialog.proto import events as ev
from trialog.proto.work import CALL, call_work_key
from trialog.spine import telemetry
from trialog.spine.blobs import BlobStore, BlobsUnavailableError
from trialog.spine.budget import Cost, cost_of
from trialog.spine.consumer import AttemptFailedError, Held, NotNowError
from trialog.spine.log import (
    MAX_INLINE_BLOB_BYTES,
    Append,
    Claim,
    EventLog,
    Fail,
    Finish,
    NewWork,
    Verdict,
)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.02, 0.5
_MAX_INVALID = 3
_FOLDER_S = 5.0
_LAST_WORDS_S = 5.0


class Answer(NamedTuple):
    """A valid reply; ``made``: it was paid for now, not found on the log."""

    reply: ev.JudgeCallRecorded
    made: bool


@dataclass(slots=True)
class _Attempt:
    """One claim of a call and what became of it. ``wanted``: somebody still waits for it;
    ``worst``: the most that it may cost."""

    held: Held
    trial_id: str
    call: Call
    expect: int
    worst: Cost
    invalid: int = 0
    fence: int = 0
    ordinal: int = 0
    wanted: bool = True
    replied: bool = False
    fact: ev.JudgeCallRecorded | None = None

    @property
    def work_key(self) -> str:
        """The key under which the call is claimed."""
        return call_work_key(self.held.run.root, self.call.key)

    @property
    def idempotency_key(self) -> str:
        """What the provider is told: that a call it has answered already is the same call. One
        whose answer was recorded as invalid is asked anew, not for the same answer again."""
        return f"{self.call.key}.{self.invalid}" if self.invalid else self.call.key


class Calls:
    """Asks a judge through the log."""

    def __init__(
        self, log: EventLog, blobs: BlobStore, client: JudgeClient, prices: Prices | None = None
    ) -> None:
        self._log, self._blobs, self._client = log, blobs, client
        self._prices, self._room = prices or Prices(), Room(log)
        self._under_way: dict[asyncio.Task[Verdict], _Attempt] = {}

    async def ask(self, held: Held, trial_id: str, call: Call) -> Answer:
        """Return the call's valid reply, made now or found on the log.

        Waits while another worker holds the call, and while the judge cannot be reached; the
        caller's deadline bounds it. Raises NotNowError when the run is paused or has ended, also
        by its budget, AttemptFailedError when the judge keeps giving invalid replies,
        JudgeRefusedError when it will never take the request.
        """
        worst = worst_cost(call.request, held.run.spec.judge.max_tokens, self._prices)
        expect, invalid = 0, 0
        pause_s, wait_s = _FIRST_PAUSE_S, _FIRST_WAIT_S
        while True:
            attempt = _Attempt(held, trial_id, call, expect, worst)
            try:
                verdict = await self._attempt(attempt)
            except (JudgeUnavailableError, JudgeTimeoutError) as error:
                telemetry.logger().warning("judge unavailable", error=str(error))
                wanted_s = getattr(error, "retry_after_s", None) or 0.0
                await asyncio.sleep(max(pause_s, wanted_s))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                expect = attempt.fence + 1
                continue
            match verdict.answer:
                case "ok":
                    assert attempt.fact is not None
                    if attempt.fact.valid:
                        return Answer(attempt.fact, made=True)
                    invalid += 1
                    if invalid == _MAX_INVALID:
                        text = f"{_MAX_INVALID} replies in a row were not valid"
                        raise AttemptFailedError("infrastructure", text)
                    expect = attempt.fence + 1
                case "done":
                    return Answer(await self._found(held, trial_id, verdict), made=False)
                case "stale":
                    expect = verdict.fence
                case "refused":
                    raise NotNowError("the run is paused or has ended")
                case "unfunded":
                    wait_s = await self._room.wait(held, worst, wait_s)
                case _:
                    # Held by another delivery or another run of the tree, or taken over by one.
                    await asyncio.sleep(wait_s)
                    wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    async def close(self) -> None:
        """Give up the calls that have no reply yet and let what came be recorded."""
        for task, attempt in self._under_way.items():
            if not attempt.replied:
                task.cancel()
        if self._under_way:
            # A last write must not wait for ever for a Postgres that is away.
            await asyncio.wait(list(self._under_way), timeout=_LAST_WORDS_S)

    async def _attempt(self, attempt: _Attempt) -> Verdict:
        """Claim a call and, when it is ours, make it and record the reply.

        Cancelled, it leaves the rest to a task that goes on. Raises JudgeCallError.
        """
        task = asyncio.create_task(self._claim_and_make(attempt), name="judge-call")
        self._under_way[task] = attempt
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            attempt.wanted = False
            raise

    def _ended(self, task: asyncio.Task[Verdict]) -> None:
        attempt = self._under_way.pop(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not attempt.wanted and not isinstance(error, JudgeCallError):
            telemetry.logger().error("a reply nobody waited for was not recorded", exc_info=error)

    async def _claim_and_make(self, attempt: _Attempt) -> Verdict:
        verdict = await self._claim(attempt)
        if verdict.answer == "held" and await self._is_ours(attempt, verdict):
            verdict = replace(verdict, answer="ok")
        if verdict.answer != "ok":
            return verdict
        attempt.fence, attempt.ordinal = verdict.fence, verdict.failures
        attempt.invalid = await self._invalid(attempt)
        if not attempt.wanted:
            await self._set_free(attempt)
            return replace(verdict, answer="lost")
        return await self._record(attempt, await self._make(attempt))

    async def _invalid(self, attempt: _Attempt) -> int:
        """Return the number that the call's last invalid reply leaves for the next one: 0 when
        none is on this run's log."""
        slots = [f"call:{attempt.call.key}:{n}" for n in range(attempt.ordinal)]
        if not slots:
            return 0
        run = attempt.held.run
        end = await self._log.end(run.partition)
        facts = [each.fact() for each in await self._log.at_slots(run.run_id, slots, end)]
        found = [fact.ordinal for fact in facts if isinstance(fact, ev.JudgeCallRecorded)]
        return max(found, default=-1) + 1

    async def _claim(self, attempt: _Attempt) -> Verdict:
        held, call, fence = attempt.held, attempt.call, attempt.expect + 1
        spec = held.run.spec
        started = ev.JudgeCallStarted(
            attempt.trial_id, call.key, fence, call.criterion, spec.judge.model
        )
        return await self._log.commit(
            Claim(
                attempt.work_key,
                held.lease_ms + int(spec.timeouts.judge_s * 1000),
                expect=attempt.expect,
                events=[held.event(started)],
                creates=NewWork(CALL, held.run.run_id, attempt.worst),
            )
        )

    async def _is_ours(self, attempt: _Attempt, verdict: Verdict) -> bool:
        """Tell whether the claim was granted and the answer got lost, as when Postgres broke off:
        this process holds the call, and nobody else in it is at it."""
        if verdict.fence != attempt.expect + 1:
            return False
        if [each.work_key for each in self._under_way.values()].count(attempt.work_key) > 1:
            return False
        return await self._log.holds(attempt.work_key, verdict.fence)

    async def _make(self, attempt: _Attempt) -> JudgeReply:
        """Send the request; without a reply the call is set free for the next attempt."""
        spec = attempt.held.run.spec
        try:
            reply = await self._client.call(
                attempt.call.request,
                idempotency_key=attempt.idempotency_key,
                latency_s=spec.judge_latency_s,
                timeout_s=spec.timeouts.judge_s,
            )
        except BaseException as error:  # this process stops, too
            unpaid = isinstance(error, JudgeCallError) and error.unpaid
            await asyncio.shield(self._set_free(attempt, None if unpaid else attempt.worst))
            raise
        attempt.replied = True
        return reply

    async def _set_free(self, attempt: _Attempt, paid: Cost | None = None) -> None:
        await self._log.commit(Fail(attempt.work_key, attempt.fence, paid=paid))

    async def _record(self, attempt: _Attempt, reply: JudgeReply) -> Verdict:
        """Record a reply, valid or not. Answers lost when the call was taken over meanwhile, as
        happens when Postgres was away for longer than the lease: the other's reply counts."""
        digest, inline = await self._kept(reply.raw)
        fact = ev.JudgeCallRecorded(
            trial_id=attempt.trial_id,
            call_key=attempt.call.key,
            ordinal=attempt.ordinal,
            criterion=attempt.call.criterion,
            model=attempt.held.run.spec.judge.model,
            valid=reply.valid,
            score=reply.score,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cost_microusd=reply.cost_microusd,
            latency_ms=reply.latency_ms,
            scores=reply.scores,
            reply=digest,
        )
        kind = Finish if reply.valid else Fail
        events = [attempt.held.event(fact)]
        paid = cost_of(reply.prompt_tokens + reply.completion_tokens, reply.cost_microusd)
        member = kind(attempt.work_key, attempt.fence, events, blobs=inline, paid=paid)
        verdict = await self._log.commit(member)
        if verdict.ok:
            attempt.fact = fact
        elif verdict.answer != "lost":
            await self._set_free(attempt, paid)
            raise RuntimeError(f"the reply to {attempt.call.key} was not taken: {verdict.answer}")
        return verdict

    async def _kept(self, raw: bytes) -> tuple[str, list[bytes]]:
        """Return the digest of a reply, and the bytes that ride with its record.

        A long one goes to the folder of large blobs. When that cannot be written, its beginning is
        kept instead: the verdict was paid for and waits for no disk.
        """
        if len(raw) > MAX_INLINE_BLOB_BYTES:
            try:
                async with asyncio.timeout(_FOLDER_S):
                    return await self._blobs.put(raw), []
            except (BlobsUnavailableError, TimeoutError) as error:
                telemetry.logger().error("a long reply is kept cut", error=repr(error))
                raw = raw[:MAX_INLINE_BLOB_BYTES]
        return await self._blobs.stage(raw)

    async def _found(self, held: Held, trial_id: str, verdict: Verdict) -> ev.JudgeCallRecorded:
        """Return the recorded reply; one of another run is recorded here as recovered.

        It keeps its ordinal, so that it meets no invalid reply of this run's own. Twins find it
        once: to the second, the slot is taken by the same reply.
        """
        assert verdict.result is not None
        event = await self._log.at_position(held.run.partition, verdict.result)
        assert event is not None
        fact = event.fact()
        assert isinstance(fact, ev.JudgeCallRecorded)
        if event.run_id == held.run.run_id:
            return fact
        source = ev.source_of(fact.provenance, event.run_id, event.position)
        fact = msgspec.structs.replace(fact, trial_id=trial_id, provenance=source)
        await self._log.commit(Append([held.event(fact)]))
        return fact
