"""The consumer: a message becomes a claim, the claim a handler's work, the work a fact.

    message -> claim -> handler -> one transaction {finish under the fence, facts} -> ack

Held and finished work is acknowledged and dropped: the sweeper owns recovery. An acknowledgement
that gets lost costs one redelivery, which finds the work done.

A message that cannot be handled (its event comes from a newer build, its run cannot be read) sets
the work free again and counts that in Postgres. The fifth time it ends as DeliveryDeadLettered: the
work is dead until somebody reopens it. A message that names no work of ours is logged and dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from nats.aio.msg import Msg

from trialog.proto import events as ev
from trialog.proto.work import WorkMessage, WorkName, origin_slot, parse_key
from trialog.spine import delivery, telemetry
from trialog.spine.bus import ACK_WAIT_S, Bus
from trialog.spine.database import DOWN
from trialog.spine.log import (
    Claim,
    ClaimLostError,
    EventLog,
    Fail,
    Finish,
    GiveBack,
    NewEvent,
    Recorded,
    Release,
    Renew,
    SlotTakenError,
    Verdict,
    new_event,
)
from trialog.spine.pull import StandingPull
from trialog.spine.runs import Run, Runs

MAX_BREAKDOWNS = 5
_EARLY_S = 0.2
_LAST_WORDS_S = 5.0


class AttemptFailedError(Exception):
    """A handler's verdict that this attempt failed; it becomes a TrialAttemptFailed fact.

    ``failure`` is one of infrastructure, agent, task, timeout, injected; ``error`` and ``record``
    are the fact's.
    """

    def __init__(self, failure: str, message: str, error: str = "", record: str = "") -> None:
        super().__init__(message)
        self.failure, self.error, self.record = failure, error, record


class NotNowError(Exception):
    """A handler's verdict that its work cannot go on now, and nobody is to blame: the run is paused
    or has ended, or has no room for a call yet. The work is given back and nothing is counted.

    ``pause_s``: when its message shall come again. By then what the work waits for may have come,
    or has not: then the message is dropped, and a resumed run's work is offered again.
    """

    def __init__(self, message: str, pause_s: float = 1.0) -> None:
        super().__init__(message)
        self.pause_s = pause_s


@dataclass(slots=True, eq=False)
class Held:
    """A claimed piece of work in a handler's hands.

    ``origin`` is the fact with the work's inputs. ``failures`` counts failed attempts of this
    stage so far, ``injected`` those among them that a fault caused. ``claimed_at`` is on this
    process's monotonic clock.
    """

    name: WorkName
    run: Run
    origin: ev.Fact
    fence: int
    failures: int
    injected: int
    lease_ms: int
    log: EventLog
    message: Msg
    worker: str
    claimed_at: float = field(default_factory=time.monotonic)
    extended_at: float = field(default_factory=time.monotonic)
    given_up: bool = False

    def event(self, fact: ev.Fact, *, held: bool = False, offered: bool = True) -> NewEvent:
        """Return a fact of this run as an event; ``held`` claims the work it offers."""
        return new_event(
            self.run.run_id,
            fact,
            partition=self.run.partition,
            offered=offered,
            held_ms=self.lease_ms if held else None,
        )

    async def finish(self, *facts: ev.Fact, blobs: Sequence[bytes] = ()) -> Verdict:
        """End this work with its facts. Raises ClaimLostError, SlotTakenError."""
        events = [self.event(fact) for fact in facts]
        return await self._finish(events, blobs)

    async def finish_and_go_on(self, fact: ev.Fact, blobs: Sequence[bytes] = ()) -> None:
        """End this work with a fact and hold the work that the fact offers.

        Raises ClaimLostError, SlotTakenError.
        """
        event = self.event(fact, held=True)
        assert event.offer is not None
        await self._finish([event], blobs)
        self.name, self.fence, self.failures, self.injected = event.offer.work, 1, 0, 0
        self.origin = fact

    async def _finish(self, events: Sequence[NewEvent], blobs: Sequence[bytes]) -> Verdict:
        return (await self.log.commit(Finish(self.name.key, self.fence, events, blobs))).check()


Handler = Callable[[Held], Awaitable[None]]


class Consumer:
    """Takes work of one kind from one pool and runs a handler on each claimed piece.

    A handler records its result through ``Held.finish``; AttemptFailedError sets the work free
    with the failure as a fact, NotNowError without one; anything else it raises is an
    infrastructure failure. When the claim is lost, or nobody needs the work any more, the handler
    is cancelled.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        log: EventLog,
        runs: Runs,
        kind: str,
        pool: str,
        handler: Handler,
        concurrency: int,
        lease_ms: int,
        worker: str,
        breakdown_pause_s: float = 2.0,
    ) -> None:
        self._bus, self._log, self._runs = bus, log, runs
        self._kind, self._handler = kind, handler
        self._lease_ms, self._worker = lease_ms, worker
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: dict[Held, asyncio.Task[None]] = {}
        self._breakdown_pause_s = breakdown_pause_s
        self._pull = StandingPull(bus, kind, pool, concurrency, self._received)

    async def run(self) -> None:
        """Work until cancelled; then call drain()."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pull.run(), name=f"pull-{self._kind}")
            group.create_task(self._keep_leases(), name=f"leases-{self._kind}")

    async def drain(self, grace_s: float) -> None:
        """Let held work end within the grace time, then cancel it: others take it over."""
        if not self._tasks:
            return
        keeper = asyncio.create_task(self._keep_leases())
        _, late = await asyncio.wait(self._tasks, timeout=grace_s)
        for task in late:
            task.cancel()
        if late:
            # A last write of a handler must not wait for ever for a Postgres that is away.
            await asyncio.wait(late, timeout=_LAST_WORDS_S)
        keeper.cancel()

    def _received(self, message: Msg) -> None:
        task = asyncio.create_task(self._take(message))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._pull.release()
        if not task.cancelled() and (error := task.exception()):
            telemetry.logger().error("a message was not handled", exc_info=error)

    async def _take(self, message: Msg) -> None:
        """Handle one message to its acknowledgement."""
        work = delivery.read(message, self._kind, self._lease_ms)
        if work is None:
            await delivery.acknowledge(message)
            return
        name = parse_key(work.key)
        about = {"trial": name.subject} if name.kind in ("trial", "judge") else {}
        telemetry.about(run=work.run_id, **about, work=work.key)
        log = telemetry.logger()
        wait_s = work.not_before_ms / 1000 - time.time()
        if wait_s > 0:
            await delivery.put_back(message, wait_s)
            return
        verdict = await self._claim(work)
        if verdict.answer == "early":  # by Postgres's clock, which decides
            await delivery.put_back(message, _EARLY_S)
            return
        if verdict.answer == "unknown":
            log.error("message dropped: the log knows no such work")
        if verdict.ok:
            try:
                held = await self._hold(work, verdict, message)
            except DOWN:
                raise  # no fault of the message: it comes again
            except Exception as error:  # whatever it is, it must not come back for ever
                await self._break_down(message, work, verdict, error)
                return
            pause_s = await self._work(held, log)
            if pause_s is not None:
                await delivery.put_back(message, pause_s)
                return
        await delivery.acknowledge(message)

    async def _claim(self, work: WorkMessage) -> Verdict:
        verdict = await self._log.commit(Claim(work.key, self._lease_ms))
        if verdict.answer != "stale":
            return verdict
        # Its holder is gone: the loss is a fact, in the transaction that takes over.
        name = parse_key(work.key)
        lost = ev.TrialAttemptFailed(
            name.subject, name.stage, verdict.lost, "lost", worker=self._worker
        )
        event = new_event(work.run_id, lost, partition=work.partition)
        return await self._log.commit(
            Claim(work.key, self._lease_ms, expect=verdict.fence, events=[event])
        )

    async def _hold(self, work: WorkMessage, verdict: Verdict, message: Msg) -> Held:
        """Return claimed work with its inputs; raises whatever is wrong with them."""
        name = parse_key(work.key)
        return Held(
            name,
            await self._runs.get(work.run_id),
            await self._origin(name, work),
            verdict.fence,
            verdict.failures,
            verdict.injected,
            self._lease_ms,
            self._log,
            message,
            self._worker,
        )

    async def _origin(self, name: WorkName, work: WorkMessage) -> ev.Fact:
        """Return the fact with the work's inputs: the message's own, but for a retry."""
        if work.type != "TrialRetryScheduled":
            return ev.decode(work.type, work.schema_version, work.data)
        event: Recorded | None = await self._log.at_slot(name.run_id, origin_slot(name))
        if event is None:
            raise LookupError(f"{origin_slot(name)} of {name.run_id} is not on the log")
        return event.fact()

    async def _work(self, held: Held, log: telemetry.Log) -> float | None:
        """Run the handler as a task of its own, so that a lost claim can cancel it alone.

        Returns after how many seconds the message shall come again, None for never.
        """
        started = time.perf_counter()
        again_s: float | None = None
        task = asyncio.ensure_future(self._handler(held))
        self._held[held] = task
        telemetry.HELD.labels(self._kind).inc()
        ended = "done"
        try:
            await task
        except asyncio.CancelledError:
            if _is_cancelled():
                # This process stops: the work is taken over by another.
                task.cancel()
                await asyncio.wait([task])
                raise
            if held.given_up:
                ended = "dropped"
                await self._drop(held)
            else:
                # Something inside the handler was cancelled: that is no reason to drop the work.
                ended = "infrastructure"
                await self._fail(held, AttemptFailedError(ended, "cancelled within"), log)
        except ClaimLostError as error:
            ended = "lost"
            log.warning("claim lost: another worker has this work", error=str(error))
        except SlotTakenError:
            # The subject's end is on the log already (skipped, cancelled): nothing left to do.
            ended = "overtaken"
            await self._drop(held)
        except NotNowError as error:
            ended, again_s = "given_back", error.pause_s
            log.info("work given back", stage=held.name.stage, reason=str(error))
            await self._log.commit(GiveBack(held.name.key, held.fence))
        except AttemptFailedError as error:
            ended = error.failure
            await self._fail(held, error, log)
        except Exception as error:
            ended = "infrastructure"
            log.error("handler broke down", exc_info=error)
            failure = AttemptFailedError("infrastructure", f"{type(error).__name__}: {error}")
            await self._fail(held, failure, log)
        finally:
            del self._held[held]
            telemetry.HELD.labels(self._kind).dec()
            telemetry.WORK_DONE.labels(self._kind, ended).inc()
            took_s = time.perf_counter() - started
            telemetry.WORK_SECONDS.labels(self._kind).observe(took_s)
            log.info("work ended", stage=held.name.stage, ended=ended, took_ms=round(took_s * 1000))
        return again_s

    async def _drop(self, held: Held) -> None:
        await self._log.commit(Finish(held.name.key, held.fence))

    async def _fail(self, held: Held, error: AttemptFailedError, log: telemetry.Log) -> None:
        injected = error.failure == "injected"
        fact = ev.TrialAttemptFailed(
            held.name.subject,
            held.name.stage,
            held.failures,
            error.failure,
            injected,
            str(error)[:500],
            self._worker,
            error.error[:100],
            error.record,
        )
        log.info("attempt failed", stage=held.name.stage, failure=error.failure)
        fail = Fail(held.name.key, held.fence, [held.event(fact)], injected)
        verdict = await self._log.commit(fail)
        if verdict.answer == "different":
            await self._drop(held)

    async def _break_down(
        self, message: Msg, work: WorkMessage, verdict: Verdict, error: Exception
    ) -> None:
        """Set work free whose message cannot be handled; bury it when that happened too often.

        The count goes on where it stood when dead work was reopened.
        """
        count = verdict.breakdowns + 1
        log = telemetry.logger().bind(run=work.run_id, work=work.key, count=count)
        if count % MAX_BREAKDOWNS:
            log.error("message cannot be handled", exc_info=error)
            await self._log.commit(Release(work.key, verdict.fence))
            pause_s = self._breakdown_pause_s * 2 ** (count % MAX_BREAKDOWNS - 1)
            await delivery.put_back(message, pause_s)
            return
        log.error("message cannot be handled: given up", exc_info=error)
        dead = ev.DeliveryDeadLettered(
            work.key,
            self._kind,
            count // MAX_BREAKDOWNS - 1,
            count,
            f"{type(error).__name__}: {error}"[:500],
        )
        event = new_event(work.run_id, dead, partition=work.partition)
        await self._log.commit(Release(work.key, verdict.fence, [event], dead=True))
        telemetry.DEAD_LETTERS.labels(self._kind).inc()
        await delivery.acknowledge(message)

    async def _keep_leases(self) -> None:
        """Extend leases and deliveries of held work, each at a third of its limit."""
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            await asyncio.gather(*(self._keep(held) for held in list(self._held)))

    async def _keep(self, held: Held) -> None:
        key, fence = held.name.key, held.fence
        verdict = await self._log.commit(Renew(key, fence, self._lease_ms))
        moved_on = (held.name.key, held.fence) != (key, fence)
        task = self._held.get(held)
        if verdict.answer != "ok" and task is not None and not moved_on:
            held.given_up = True
            task.cancel()
            return
        if time.monotonic() - held.extended_at > ACK_WAIT_S / 3:
            held.extended_at = time.monotonic()
            await delivery.keep(held.message)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
