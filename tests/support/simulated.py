"""A whole run in one thread, in an order drawn from a seed, with deaths at every moment.

Drivers and workers are the real decide, fold and members over the in-memory log; what agents, judge
and trainer would do is the tests' own model of the loop. Every process may die between any two of
its steps, a message may come twice or late, a replaced driver goes on writing, a worker whose lease
ended finishes all the same.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from typing import Any

from support import reference
from trialog.driver import state as fold
from trialog.driver.decide import decide
from trialog.driver.state import RunState
from trialog.proto import events as ev
from trialog.proto.canonical import bytes_digest, canonical, digest
from trialog.proto.ids import event_id, parse_trial_id
from trialog.proto.policy import initial_weights, world_of
from trialog.proto.runspec import RunSpec
from trialog.proto.work import CALL, WorkName, call_work_key, origin_slot, parse_key
from trialog.spine.log import (
    Append,
    Claim,
    Fail,
    Finish,
    NewWork,
    Verdict,
    new_event,
)
from trialog.spine.memory.clock import ManualClock
from trialog.spine.memory.store import MemoryStore

RUN = "r-abcdefghijklmnop"
LEASE_MS = 1_000


class Driver:
    """A driver that leads, or thinks it does."""

    def __init__(self, world: World, fence: int) -> None:
        self.world, self.fence = world, fence
        self.state: RunState | None = None
        self.position = 0

    def step(self) -> None:
        """Fold what is new, then record what follows. What was overtaken is decided anew."""
        for row in self.world.store.events[0][self.position :]:
            self.state = folded(self.state, row.recorded)
            self.position = row.recorded.position
        if self.state is None:
            return
        now_ms = self.world.clock().timestamp() * 1000
        decision = decide(self.state, now_ms, self.world.draw.random)
        for data in decision.blobs:
            self.world.blobs[bytes_digest(data)] = data
        if not decision.facts and not decision.closes:
            return
        events = [new_event(RUN, fact) for fact in decision.facts]
        member = Append(events, owner_fence=self.fence, closes=decision.closes)
        verdict = self.world.commit(0, member)
        if verdict.ok:
            self.state.to_close.clear()
        self.world.verdicts[verdict.answer] += 1


def folded(state: RunState | None, event: Any) -> RunState:
    """Fold one recorded event."""
    fact = event.fact()
    if state is None:
        assert isinstance(fact, ev.RunRequested)
        return fold.begin(RUN, 0, fact)
    fold.evolve(state, fact, event.position, event.recorded_at.timestamp() * 1000)
    return state


class World:
    """Everything there is; ``step()`` lets something happen."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.draw = random.Random(seed)
        self.spec = RunSpec.model_validate(settings)
        faults = self.spec.faults
        self.model = reference.Settings(
            n_steps=self.spec.n_steps,
            n_worlds=self.spec.n_worlds,
            prompts_per_step=self.spec.prompts_per_step,
            n_samples=self.spec.n_samples,
            flaky=faults.flaky_trial_rate,
            judge_flake=faults.judge_flake_rate,
            seed=self.spec.seed,
        )
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.store = MemoryStore(self.clock)
        weights = initial_weights(self.spec.n_worlds)
        self.blobs = {bytes_digest(weights): weights}
        self.http_calls: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.workers: list[tuple[int, Generator[None]]] = []
        self.incarnation = 100
        request = ev.RunRequested(self.spec.recorded(), RUN, bytes_digest(weights))
        self.commit(0, Append([new_event(RUN, request)]))
        self.drivers = [self._new_driver()]

    def commit(self, incarnation: int, member: Any) -> Verdict:
        """Write a member."""
        return self.store.commit(incarnation, member)

    def facts(self, *kinds: type[ev.Fact]) -> list[Any]:
        """Return the log's facts of some kinds."""
        found = (row.recorded.fact() for row in self.store.events[0])
        return [fact for fact in found if isinstance(fact, kinds)]

    @property
    def ended(self) -> bool:
        """Whether the run's end is on the log."""
        return self.store.runs[RUN].state == "ended"

    def step(self) -> None:
        """Let one thing happen, drawn by its weight."""
        happenings = [
            (8.0, self._drive),
            (6.0, self._deliver),
            (20.0, self._work),
            (1.5, self._pass_time),
            (0.25, self._kill_worker),
            (0.12, self._replace_driver),
        ]
        weights = [weight for weight, _ in happenings]
        self.draw.choices([call for _, call in happenings], weights)[0]()

    def run(self, most: int = 60_000) -> None:
        """Step until the run has ended and the last driver knows."""
        for _ in range(most):
            if self.ended:
                self.drivers[-1].step()
                return
            self.step()
        raise AssertionError(f"not ended after {most} steps: {self.verdicts}")

    def _new_driver(self) -> Driver:
        self.store.heads[0].owner_fence += 1
        return Driver(self, self.store.heads[0].owner_fence)

    def _drive(self) -> None:
        self.draw.choice(self.drivers).step()

    def _replace_driver(self) -> None:
        """Another driver takes over; the old one may live on without knowing, or be dead."""
        self.drivers = [*self.drivers[-1:], self._new_driver()][-self.draw.choice((1, 2)) :]

    def _pass_time(self) -> None:
        self.clock.advance(self.draw.choice((1, 30, 200, LEASE_MS / 2)))

    def _deliver(self) -> None:
        """Hand any piece of work, done or not, to a new worker: messages come late and twice."""
        keys = [row.key for row in self.store.work.values() if row.kind != CALL]
        if keys:
            self.incarnation += 1
            worker = self._worker(self.incarnation, parse_key(self.draw.choice(keys)))
            self.workers.append((self.incarnation, worker))

    def _work(self) -> None:
        if not self.workers:
            return
        index = self.draw.randrange(len(self.workers))
        try:
            next(self.workers[index][1])
        except StopIteration:
            del self.workers[index]

    def _kill_worker(self) -> None:
        """A worker dies where it stands; presence ends its leases, or their time does."""
        if not self.workers:
            return
        incarnation, _ = self.workers.pop(self.draw.randrange(len(self.workers)))
        if self.draw.random() < 0.5:
            for row in self.store.work.values():
                if row.incarnation == incarnation and not row.done:
                    row.lease_until = self.clock() - timedelta(days=1)

    def _worker(self, me: int, name: WorkName) -> Generator[None]:
        verdict = self.commit(me, Claim(name.key, LEASE_MS))
        yield
        if verdict.answer == "stale":
            lost = ev.TrialAttemptFailed(name.subject, name.stage, verdict.lost, "lost")
            events = [new_event(RUN, lost)]
            verdict = self.commit(me, Claim(name.key, LEASE_MS, verdict.fence, events))
            yield
        self.verdicts[verdict.answer] += 1
        if verdict.ok:
            yield from self._stages[name.stage](self, me, name, verdict)

    def _origin(self, name: WorkName) -> Any:
        return self.store.by_id[event_id(RUN, origin_slot(name))].recorded.fact()

    def _finish(self, me: int, name: WorkName, fence: int, fact: ev.Fact, **how: Any) -> Verdict:
        verdict = self.commit(me, Finish(name.key, fence, [new_event(RUN, fact, **how)]))
        self.verdicts[verdict.answer] += 1
        if verdict.answer == "different":
            self.commit(me, Finish(name.key, fence))
        return verdict

    def _fail(self, me: int, name: WorkName, verdict: Verdict) -> None:
        fact = ev.TrialAttemptFailed(
            name.subject, name.stage, verdict.failures, "injected", injected=True
        )
        self.commit(me, Fail(name.key, verdict.fence, [new_event(RUN, fact)], injected=True))

    def _build(self, me: int, name: WorkName, verdict: Verdict) -> Generator[None]:
        yield
        fact = ev.WorldBuilt(name.subject, self._origin(name).action_key, f"d-{name.subject}")
        self._finish(me, name, verdict.fence, fact)

    def _generate(self, me: int, name: WorkName, verdict: Verdict) -> Generator[None]:
        origin = self._origin(name)
        flaky = reference.rng(self.model, "trial", name.subject).random() < self.model.flaky
        yield
        if verdict.injected == 0 and flaky:
            self._fail(me, name, verdict)
            return
        prior = json.loads(self.blobs[origin.weights_digest])["doc_prior"][origin.world_id]
        made = reference.generate(self.model, name.subject, origin.world_id, prior)
        assert made["attempt"] == verdict.injected
        blob = canonical(made)
        self.blobs[bytes_digest(blob)] = blob
        meaning = digest({key: made[key] for key in ("turns", "answer", "files")})
        fact = ev.TrajectoryRecorded(
            name.subject,
            origin.step,
            origin.action_key,
            meaning,
            bytes_digest(blob),
            len(made["turns"]),
            made["attempt"],
        )
        ended = self._finish(me, name, verdict.fence, fact, held_ms=LEASE_MS)
        yield
        if ended.ok:
            after = WorkName(RUN, name.subject, "verify")
            yield from self._verify(me, after, Verdict("ok", fence=1))

    def _verify(self, me: int, name: WorkName, verdict: Verdict) -> Generator[None]:
        origin = self._origin(name)
        made = json.loads(self.blobs[origin.blob])
        secret, answer = reference.world(self.model, self._world_of(name))
        yield
        right = made["answer"] == answer
        fact = ev.TrialVerified(
            name.subject,
            origin.step,
            "k",
            right,
            secret if right else None,
            origin.digest,
            origin.blob,
            origin.n_turns,
        )
        self._finish(me, name, verdict.fence, fact)

    def _judge(self, me: int, name: WorkName, verdict: Verdict) -> Generator[None]:
        origin = self._origin(name)
        made = json.loads(self.blobs[origin.blob])
        scored = reference.judge(self.model, name.subject, self._world_of(name), made)
        if not (yield from self._call(me, name, origin, scored["judge_score"])):
            return
        flake = reference.rng(self.model, "flake", name.subject).random() < self.model.judge_flake
        if verdict.injected == 0 and flake:
            self._fail(me, name, verdict)
            return
        fact = ev.Judged(
            name.subject,
            origin.step,
            self._world_of(name),
            "k",
            digest([name.subject, scored["reward"]]),
            scored["judge_score"],
            scored["reward"],
            origin.verified,
            origin.found_doc,
            origin.n_turns,
        )
        yield
        self._finish(me, name, verdict.fence, fact)

    def _call(
        self, me: int, name: WorkName, origin: Any, score: float
    ) -> Generator[None, None, bool]:
        """Make the trial's judge call unless it stands on the log; True when it does then."""
        key = digest([name.subject, origin.trajectory])
        work_key, expect = call_work_key(RUN, key), 0
        while True:
            started = ev.JudgeCallStarted(name.subject, key, expect + 1, "*", "m")
            claim = Claim(work_key, LEASE_MS, expect, [new_event(RUN, started)], NewWork(CALL, RUN))
            verdict = self.commit(me, claim)
            yield
            match verdict.answer:
                case "done":
                    return True
                case "stale":
                    expect = verdict.fence
                case "ok":
                    break
                case _:
                    return False  # held by another; this worker gives up and its claim lapses
        self.http_calls[key] += 1
        yield
        fact = ev.JudgeCallRecorded(
            name.subject, key, verdict.failures, "*", "m", True, score, 1, 1, 1, 1.0
        )
        finish = Finish(work_key, verdict.fence, [new_event(RUN, fact)])
        answer = self.commit(me, finish).answer
        yield
        return answer == "ok"

    def _train(self, me: int, name: WorkName, verdict: Verdict) -> Generator[None]:
        order = self._origin(name)
        rows = json.loads(self.blobs[order.manifest])
        weights = json.loads(self.blobs[order.prior_digest])
        for row in rows:
            if row["found_doc"] is not None and row["reward"] > 0:
                prior = weights["doc_prior"][row["world_id"]]
                prior[row["found_doc"]] += self.spec.lr * row["reward"]
        data = canonical(weights)
        self.blobs[bytes_digest(data)] = data
        yield
        fact = ev.StepApplied(
            order.step,
            order.action_key,
            True,
            order.prior_digest,
            bytes_digest(data),
            order.step + 1,
            len(rows),
            order.n_skipped,
        )
        self._finish(me, name, verdict.fence, fact)

    def _world_of(self, name: WorkName) -> str:
        return world_of(parse_trial_id(name.subject).prompt, self.spec.n_worlds)

    _stages = {  # noqa: RUF012 - a table of methods
        "build_world": _build,
        "generate": _generate,
        "verify": _verify,
        "judge": _judge,
        "train_step": _train,
    }
