"""Runs without services: a log in memory, drivers that decide over it, workers as generators.

What is said and kept is real: decide, fold, ancestors, forking, members and claims. What agents,
judge and trainer make of their work is the tests' own model (support/outcomes.py). A worker yields
wherever it may die or be overtaken; who lets it go on is the test (support/simulated.py, trees.py).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Coroutine, Generator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from msgspec.structs import replace
from support.outcomes import Outcomes
from trialog.driver import forking
from trialog.driver import state as fold
from trialog.driver.ancestors import Ancestors
from trialog.driver.decide import chunks, decide
from trialog.driver.state import RunState
from trialog.driver.views import Doc, evolve_run
from trialog.proto import events as ev
from trialog.proto.canonical import bytes_digest
from trialog.proto.ids import event_id, run_id_from
from trialog.proto.keys import Asked, pinned
from trialog.proto.policy import initial_weights
from trialog.proto.runspec import RunSpec
from trialog.proto.work import CALL, WorkName, call_work_key, origin_slot
from trialog.spine import lineage
from trialog.spine.log import Append, Claim, Fail, Finish, NewWork, Recorded, Verdict, new_event
from trialog.spine.memory.clock import ManualClock
from trialog.spine.memory.log import MemoryLog
from trialog.spine.memory.store import MemoryStore

RUN = "r-abcdefghijklmnop"
LEASE_MS = 1_000

_T = TypeVar("_T")
_Looked = TypeVar("_Looked", ev.TrialVerified, ev.Judged)


def now(reading: Coroutine[Any, Any, _T]) -> _T:
    """Return what a read of the log in memory returns: it never waits."""
    try:
        reading.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("a read of the log in memory waits for something")


class Driver:
    """A driver that leads, or thinks it does."""

    def __init__(self, site: Site, fence: int) -> None:
        self.site, self.fence = site, fence
        self.begin()

    def begin(self) -> None:
        """Know nothing yet."""
        self.states: dict[str, RunState] = {}
        self.position = 0
        self._ancestors = Ancestors(self.site.log)

    def step(self, runs: Sequence[str] | None = None) -> bool:
        """Fold what is new, then record what follows in each run, or in some; tell whether
        anything did. What was overtaken is decided anew."""
        self.follow()
        states = [state for run, state in self.states.items() if runs is None or run in runs]
        decided = [self._decide(state) for state in states]
        return True in decided

    def follow(self) -> None:
        """Fold what is new."""
        for row in self.site.store.events[0][self.position :]:
            fold_in(self.states, row.recorded)
            self.position = row.recorded.position

    def _decide(self, state: RunState) -> bool:
        now_ms = self.site.clock().timestamp() * 1000
        above = now(self._ancestors.of(state))
        decision = decide(state, now_ms, self.site.draw.random, above)
        for data in decision.blobs:
            self.site.blobs[bytes_digest(data)] = data
        if not decision.facts and not decision.closes:
            return False
        closes = decision.closes
        for chunk in chunks(decision.facts, self.site.chunk()):
            events = [new_event(state.run_id, fact) for fact in chunk]
            verdict = self.site.commit(0, Append(events, self.fence, closes))
            self.site.verdicts[verdict.answer] += 1
            closes = ()
            if self.site.breaks_off():
                self.begin()
                return True
            if not verdict.ok:
                return True
        state.to_close.clear()
        return True


def fold_in(states: dict[str, RunState], event: Recorded) -> None:
    """Fold one recorded event into the states of runs."""
    fact = event.fact()
    if isinstance(fact, ev.RunRequested):
        states.setdefault(event.run_id, fold.begin(event.run_id, 0, fact))
    else:
        at_ms = event.recorded_at.timestamp() * 1000
        fold.evolve(states[event.run_id], fact, event.position, at_ms)


class Site:
    """Log, blobs, clock, and what became of the runs' work."""

    lease_ms: float = LEASE_MS

    def __init__(self, seed: int = 0) -> None:
        self.draw = random.Random(seed)
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.store = MemoryStore(self.clock)
        self.log = MemoryLog(self.store, 1)
        self.blobs: dict[str, bytes] = {}
        # The versions of all code, as services would tell them.
        names = ("agent:policy", "verifier:reference", "learner:bandit")
        self.code: dict[str, str] = dict.fromkeys(names, "1")
        self.outcomes: dict[str, Outcomes] = {}
        self.http_calls: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()

    def commit(self, incarnation: int, member: Any) -> Verdict:
        """Write a member."""
        return self.store.commit(incarnation, member)

    def chunk(self) -> int:
        """Return how many facts of a decision go into one append."""
        return 500

    def breaks_off(self) -> bool:
        """Whether a driver dies between two appends of one decision."""
        return False

    def run(self, **settings: Any) -> str:
        """Ask for a run; return its id."""
        spec = RunSpec.model_validate(settings)
        run_id = self.new_id()
        weights = self._weights(spec)
        code = pinned(spec, self.code)
        return self.ask(run_id, ev.RunRequested(spec.recorded(), run_id, weights, code=code))

    def fork(
        self, parent: str, *, mode: forking.Mode | None = None, at: int | None = None, **body: Any
    ) -> str:
        """Fork a run as the API does, as it was at a position; return the fork's id. Raises
        ForkRefusedError, and ValidationError for settings that no run can have."""
        return self.ask(self.new_id(), self.forked(parent, mode=mode, at=at, **body))

    def forked(
        self, parent: str, *, mode: forking.Mode | None = None, at: int | None = None, **body: Any
    ) -> ev.RunRequested:
        """Return the request of a fork."""
        doc = self.document(parent, at)
        begun = doc["steps_applied"]
        if doc["current_step"] is not None:
            begun = max(begun, doc["current_step"] + 1)
        position = self.store.heads[0].position if at is None else at
        request = self.outcomes[parent].request
        above = forking.Ancestor(parent, request, doc["steps_applied"], begun, position)
        settings, from_step = forking.split(body)
        mode = mode or forking.kept_mode(above)
        forking.check(above, settings, from_step, mode)
        spec = RunSpec.model_validate_json(forking.merged(above, settings, mode))
        code = pinned(spec, self.code)
        return forking.request_of(above, spec, code, self._weights(spec), from_step, mode)

    def ask(self, run_id: str, request: ev.RunRequested) -> str:
        """Record that a run is asked for."""
        self.outcomes[run_id] = Outcomes(request, self.blobs)
        self.commit(0, Append([new_event(run_id, request)])).check()
        return run_id

    def new_id(self) -> str:
        """Return an id for the next run; the first one's is RUN."""
        n = len(self.outcomes)
        return RUN if n == 0 else run_id_from(f"run {n}".encode())

    def _weights(self, spec: RunSpec) -> str:
        weights = initial_weights(spec.n_worlds)
        self.blobs[bytes_digest(weights)] = weights
        return bytes_digest(weights)

    def new_driver(self) -> Driver:
        """Return a driver that takes over."""
        self.store.heads[0].owner_fence += 1
        return Driver(self, self.store.heads[0].owner_fence)

    def document(self, run_id: str, until: int | None = None) -> Doc:
        """Return a run's document, as of a position."""
        doc: Doc | None = None
        for event in self.store.events_of(run_id):
            if until is None or event.position <= until:
                doc = evolve_run(doc, event, event.fact())
        assert doc is not None
        return doc

    def facts(self, *kinds: type[ev.Fact], run: str | None = None) -> list[Any]:
        """Return the log's facts of some kinds, of one run or of all."""
        rows = (row.recorded for row in self.store.events[0])
        found = (event.fact() for event in rows if run is None or event.run_id == run)
        return [fact for fact in found if not kinds or isinstance(fact, kinds)]

    def at(self, run_id: str, slot: str) -> Recorded | None:
        """Return the event that holds a slot of a run, if any."""
        return now(self.log.at_slot(run_id, slot))

    def ended(self, run_id: str) -> bool:
        """Whether a run's end is on the log."""
        return self.store.runs[run_id].state == "ended"

    def worker(self, me: int, name: WorkName) -> Generator[None]:
        """Claim a piece of work and do it. ``me`` is the incarnation that holds it."""
        verdict = self.commit(me, Claim(name.key, int(self.lease_ms)))
        yield
        if verdict.answer == "stale":
            lost = ev.TrialAttemptFailed(name.subject, name.stage, verdict.lost, "lost")
            events = [new_event(name.run_id, lost)]
            verdict = self.commit(me, Claim(name.key, int(self.lease_ms), verdict.fence, events))
            yield
        self.verdicts[verdict.answer] += 1
        if verdict.ok:
            yield from self._stages[name.stage](self, me, name, verdict)

    def _origin(self, name: WorkName) -> Any:
        return self.store.by_id[event_id(name.run_id, origin_slot(name))].recorded.fact()

    def _finish(self, me: int, name: WorkName, fence: int, fact: ev.Fact, **how: Any) -> Verdict:
        event = new_event(name.run_id, fact, **how)
        verdict = self.commit(me, Finish(name.key, fence, [event]))
        self.verdicts[verdict.answer] += 1
        if verdict.answer == "different":
            self.commit(me, Finish(name.key, fence))
        return verdict

    def _fail(self, me: int, name: WorkName, verdict: Verdict) -> None:
        fact = ev.TrialAttemptFailed(
            name.subject, name.stage, verdict.failures, "injected", injected=True
        )
        events = [new_event(name.run_id, fact)]
        self.commit(me, Fail(name.key, verdict.fence, events, injected=True))

    def _build(self, me: int, name: WorkName, verdict: Verdict) -> Generator[None]:
        yield
        fact = self.outcomes[name.run_id].built(self._origin(name))
        self._finish(me, name, verdict.fence, fact)

    def _generate(self, me: int, name: WorkName, verdict: Verdict) -> Generator[None]:
        made = self.outcomes[name.run_id]
        yield
        if made.fails(name.subject, verdict.injected):
            self._fail(me, name, verdict)
            return
        fact = made.tried(self._origin(name), verdict.injected)
        ended = self._finish(me, name, verdict.fence, fact, held_ms=int(self.lease_ms))
        yield
        if ended.ok:
            after = WorkName(name.run_id, name.subject, "verify")
            yield from self._verify(me, after, Verdict("ok", fence=1))

    def _verify(self, me: int, name: WorkName, verdict: Verdict) -> Generator[None]:
        yield
        made, origin = self.outcomes[name.run_id], self._origin(name)
        fact = made.verified(origin)
        kept = self._inherited(name, f"verified:{name.subject}", fact.action_key, ev.TrialVerified)
        if kept is not None:
            fact = replace(kept, blob=origin.blob, settled=False)
        self._finish(me, name, verdict.fence, fact)

    def _judge(self, me: int, name: WorkName, verdict: Verdict) -> Generator[None]:
        made, origin, found = self.outcomes[name.run_id], self._origin(name), 0
        kept = self._inherited(name, f"end:{name.subject}", made.keys.judge(origin), ev.Judged)
        if kept is not None:
            yield
            self._finish(me, name, verdict.fence, kept)
            return
        calls = made.keys.calls(origin)
        for asked, key in calls:
            answer = yield from self._call(me, name, asked, key)
            if answer is None:
                return
            found += answer == "found"
        if made.flakes(name.subject, verdict.injected):
            self._fail(me, name, verdict)
            return
        yield
        self._finish(me, name, verdict.fence, made.judged(origin, len(calls), found))

    def _inherited(
        self, name: WorkName, slot: str, key: str, kind: type[_Looked]
    ) -> _Looked | None:
        """Return what an ancestor has of an action, as a worker looks it up before it begins."""
        ancestors = self.outcomes[name.run_id].request.lineage
        return now(lineage.recovered(self.log, ancestors, slot, key, kind))

    def _call(
        self, me: int, name: WorkName, asked: Asked, key: str
    ) -> Generator[None, None, str | None]:
        """Make a judge call unless it stands on the log; return made, found, or None: given up."""
        made = self.outcomes[name.run_id]
        work_key, expect, model = call_work_key(made.request.root, key), 0, "m"
        while True:
            started = ev.JudgeCallStarted(name.subject, key, expect + 1, asked.criterion, model)
            events, work = [new_event(name.run_id, started)], NewWork(CALL, name.run_id)
            verdict = self.commit(me, Claim(work_key, int(self.lease_ms), expect, events, work))
            yield
            match verdict.answer:
                case "done":
                    self._found(me, name, verdict)
                    return "found"
                case "stale":
                    expect = verdict.fence
                case "ok":
                    break
                case "held" if self.waits():
                    pass
                case _:
                    return None  # this worker gives up, and its claim lapses
        self.http_calls[key] += 1
        yield
        fact = made.reply(name.subject, asked, key, verdict.failures)
        finish = Finish(work_key, verdict.fence, [new_event(name.run_id, fact)])
        answer = self.commit(me, finish).answer
        yield
        return "made" if answer == "ok" else None

    def waits(self) -> bool:
        """Whether a worker goes on waiting for a call that another one makes."""
        return True

    def _found(self, me: int, name: WorkName, verdict: Verdict) -> None:
        """Record here the reply that another run of the tree has, as a judge does."""
        assert verdict.result is not None
        event = self.store.events[0][verdict.result - 1].recorded
        fact = event.fact()
        assert isinstance(fact, ev.JudgeCallRecorded)
        if event.run_id != name.run_id:
            source = fact.provenance or ev.Provenance(event.run_id, event.position)
            fact = replace(fact, trial_id=name.subject, provenance=source)
            self.commit(me, Append([new_event(name.run_id, fact)]))

    def _train(self, me: int, name: WorkName, verdict: Verdict) -> Generator[None]:
        yield
        fact = self.outcomes[name.run_id].applied(self._origin(name))
        self._finish(me, name, verdict.fence, fact)

    _stages = {  # noqa: RUF012 - a table of methods
        "build_world": _build,
        "generate": _generate,
        "verify": _verify,
        "judge": _judge,
        "train_step": _train,
    }
