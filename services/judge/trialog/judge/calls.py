"""Judge calls that are made once: claimed in the tree of runs, recorded the moment they return.

    claim (JudgeCallStarted comes with it) -> call -> finish {JudgeCallRecorded}

A reply is on the log before anything else can fail, so a retry of the judgment finds it. A worker
that dies between reply and record is the only case that repeats a call; it shows as a
JudgeCallStarted without a record (docs/invariants.md, I4).
"""

from __future__ import annotations

import asyncio

import msgspec

from trialog.judge.clients import JudgeClient, JudgeReply
from trialog.judge.errors import JudgeTimeoutError, JudgeUnavailableError
from trialog.judge.scoring import Call
from trialog.proto import events as ev
from trialog.proto.work import CALL, call_work_key
from trialog.spine import telemetry
from trialog.spine.blobs import BlobStore
from trialog.spine.consumer import AttemptFailedError, Held
from trialog.spine.log import Append, Claim, EventLog, Fail, Finish, NewWork, Verdict

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.02, 0.5
_MAX_INVALID = 3


class Calls:
    """Asks a judge through the log."""

    def __init__(self, log: EventLog, blobs: BlobStore, client: JudgeClient) -> None:
        self._log, self._blobs, self._client = log, blobs, client

    async def ask(self, held: Held, trial_id: str, call: Call) -> ev.JudgeCallRecorded:
        """Return the call's valid reply, made now or found on the log.

        Waits while another worker holds the call or the run is paused, and while the judge cannot
        be reached; the caller's deadline bounds it. Raises AttemptFailedError when the judge keeps
        giving invalid replies, JudgeRefusedError when it will never take the request.
        """
        key = call.key
        work_key = call_work_key(held.run.root, key)
        expect, pause_s, invalid = 0, _FIRST_PAUSE_S, 0
        wait_s = _FIRST_WAIT_S
        while True:
            verdict = await self._claim(held, trial_id, call, key, work_key, expect)
            match verdict.answer:
                case "ok":
                    try:
                        reply = await self._make(held, trial_id, call, key, work_key, verdict)
                    except (JudgeUnavailableError, JudgeTimeoutError) as error:
                        telemetry.logger().warning("judge unavailable", error=str(error))
                        wanted_s = getattr(error, "retry_after_s", None) or 0.0
                        await asyncio.sleep(max(pause_s, wanted_s))
                        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                        expect = verdict.fence
                        continue
                    if reply is not None:
                        return reply
                    invalid += 1
                    if invalid == _MAX_INVALID:
                        raise AttemptFailedError(
                            "infrastructure", f"{_MAX_INVALID} replies in a row were not valid"
                        )
                    expect = verdict.fence
                case "done":
                    return await self._found(held, trial_id, verdict)
                case "stale":
                    expect = verdict.fence
                case _:
                    # Held by another delivery or another run of the tree, or the run is paused.
                    await asyncio.sleep(wait_s)
                    wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    async def _claim(
        self, held: Held, trial_id: str, call: Call, key: str, work_key: str, expect: int
    ) -> Verdict:
        model = held.run.spec.judge.model
        started = ev.JudgeCallStarted(trial_id, key, expect + 1, call.criterion, model)
        return await self._log.commit(
            Claim(
                work_key,
                held.lease_ms + int(held.run.spec.timeouts.judge_s * 1000),
                expect=expect,
                events=[held.event(started)],
                creates=NewWork(CALL, held.run.run_id),
            )
        )

    async def _make(
        self,
        held: Held,
        trial_id: str,
        call: Call,
        key: str,
        work_key: str,
        verdict: Verdict,
    ) -> ev.JudgeCallRecorded | None:
        """Make the call and record the reply; None when it is not valid."""
        spec = held.run.spec
        recorded = False
        try:
            reply = await self._client.call(
                call.request,
                idempotency_key=key,
                latency_s=spec.judge_latency_s,
                timeout_s=spec.timeouts.judge_s,
            )
            model = spec.judge.model
            fact, inline = await self._fact(trial_id, call, model, verdict, reply)
            if reply.valid:
                finish = Finish(work_key, verdict.fence, [held.event(fact)], inline)
                (await self._log.commit(finish)).check()
                recorded = True
                return fact
            await self._blobs.put(reply.raw)
            fail = Fail(work_key, verdict.fence, [held.event(fact)])
            (await self._log.commit(fail)).check()
            recorded = True
            return None
        finally:
            if not recorded:
                # Set it free for the next attempt, also when this one is cancelled.
                await asyncio.shield(self._log.commit(Fail(work_key, verdict.fence)))

    async def _fact(
        self, trial_id: str, call: Call, model: str, verdict: Verdict, reply: JudgeReply
    ) -> tuple[ev.JudgeCallRecorded, list[bytes]]:
        digest, inline = await self._blobs.stage(reply.raw)
        fact = ev.JudgeCallRecorded(
            trial_id,
            call.key,
            verdict.failures,
            call.criterion,
            model,
            reply.valid,
            reply.score,
            reply.prompt_tokens,
            reply.completion_tokens,
            reply.cost_microusd,
            reply.latency_ms,
            reply.scores,
            digest,
        )
        return fact, inline

    async def _found(self, held: Held, trial_id: str, verdict: Verdict) -> ev.JudgeCallRecorded:
        """Return the recorded reply; one of another run is recorded here as recovered."""
        assert verdict.result is not None
        event = await self._log.at_position(held.run.partition, verdict.result)
        assert event is not None
        fact = event.fact()
        assert isinstance(fact, ev.JudgeCallRecorded)
        if event.run_id == held.run.run_id:
            return fact
        source = fact.provenance or ev.Provenance(event.run_id, event.position)
        fact = msgspec.structs.replace(fact, trial_id=trial_id, ordinal=0, provenance=source)
        await self._log.commit(Append([held.event(fact)]))
        return fact
