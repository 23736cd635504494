"""A tree of runs in order, without deaths: each goes to its end when it is told to."""

from __future__ import annotations

from collections import Counter
from typing import Any

from support.outcomes import Outcomes
from support.site import LEASE_MS, Site
from trialog.proto import events as ev
from trialog.proto.slots import slot_of
from trialog.proto.work import (
    BUILD_WORLD,
    CALL,
    GENERATE,
    JUDGE,
    TRAIN_STEP,
    VERIFY,
    WorkName,
    call_work_key,
    parse_key,
    step_subject,
)
from trialog.spine.log import Append, Claim, Fail, Finish, NewWork, new_event

_MOST_ROUNDS = 3000
_GONE = 99
Action = tuple[str, str, str]
"""Kind, subject and key of what was done."""


class Tree(Site):
    """``end()`` lets runs go on, one piece of work after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = self.new_driver()
        self._incarnation = 100

    def ended_run(self, **settings: Any) -> str:
        """Ask for a run and let it go to its end."""
        return self.end(self.run(**settings))

    def ended_fork(self, parent: str, **how: Any) -> str:
        """Fork a run and let the fork go to its end."""
        return self.end(self.fork(parent, **how))

    def end(self, run_id: str) -> str:
        """Let one run go to its end while the others stand still; return its id."""
        for _ in range(_MOST_ROUNDS):
            decided = self.driver.step([run_id])
            if self.ended(run_id) and not decided:
                return run_id
            if not self._work(run_id) and not decided:
                self.clock.advance(100)  # a retry is not due yet, or another run holds a call
        raise AssertionError(f"{run_id} does not end: {self.facts(run=run_id)[-5:]}")

    def decided(self, run_id: str) -> list[ev.Fact]:
        """Return what follows in a run before any work of it is done, recorded."""
        before = len(self.facts(run=run_id))
        while self.driver.step([run_id]):
            pass
        return self.facts(run=run_id)[before:]

    def _work(self, run_id: str) -> bool:
        before = self.store.heads[0].position
        for row in list(self.store.work.values()):
            if row.run_id == run_id and not row.done and row.kind != CALL:
                self._incarnation += 1
                for _ in self.worker(self._incarnation, parse_key(row.key)):
                    self.clock.advance(1)
        return self.store.heads[0].position > before

    def cut(self, until: int) -> Tree:
        """Return another tree in which no more has happened than up to a position: who was at work
        then is gone, and what it held is free once its lease is over."""
        tree = Tree()
        tree.blobs, tree.code = dict(self.blobs), self.code
        for row in self.store.events[0][:until]:
            at = row.recorded.recorded_at
            tree.clock.advance((at - tree.clock()).total_seconds() * 1000)
            tree._again(row.recorded.run_id, row.recorded.fact())
            assert tree.store.heads[0].position == row.recorded.position
        return tree

    def _again(self, run_id: str, fact: ev.Fact) -> None:
        """Record a fact of another tree as it came about there."""
        events = [new_event(run_id, fact, held_ms=_held_ms(fact))]
        if isinstance(fact, ev.RunRequested):
            self.outcomes[run_id] = Outcomes(fact, self.blobs)
        if isinstance(fact, ev.JudgeCallStarted):
            root = self.outcomes[run_id].request.root
            key, expect = call_work_key(root, fact.call_key), fact.fence - 1
            claim = Claim(key, LEASE_MS, expect, events, NewWork(CALL, run_id))
            self.commit(_GONE, claim).check()
            return
        key = self._key_ended_by(run_id, fact)
        if key is None:
            self.commit(_GONE, Append(events)).check()
            return
        if self.store.work[key].incarnation is None:
            self.commit(_GONE, Claim(key, LEASE_MS)).check()
        fence = self.store.work[key].fence
        failed = isinstance(fact, ev.TrialAttemptFailed)
        member = Fail(key, fence, events, injected=True) if failed else Finish(key, fence, events)
        self.commit(_GONE, member).check()

    def _key_ended_by(self, run_id: str, fact: ev.Fact) -> str | None:
        """Return the key of the work that ended, or failed, with a fact."""
        if getattr(fact, "provenance", None) is not None:
            return None
        match fact:
            case ev.WorldBuilt(world_id=world):
                return WorkName(run_id, world, BUILD_WORLD).key
            case ev.TrajectoryRecorded(trial_id=trial):
                return WorkName(run_id, trial, GENERATE).key
            case ev.TrialVerified(trial_id=trial):
                return WorkName(run_id, trial, VERIFY).key
            case ev.Judged(trial_id=trial):
                return WorkName(run_id, trial, JUDGE).key
            case ev.JudgeCallRecorded(call_key=key):
                return call_work_key(self.outcomes[run_id].request.root, key)
            case ev.StepApplied(trained=True, step=step):
                return WorkName(run_id, step_subject(step), TRAIN_STEP).key
            case ev.TrialAttemptFailed(failure="injected"):
                return WorkName(run_id, fact.subject, fact.stage).key
            case _:
                return None


def _held_ms(fact: ev.Fact) -> int | None:
    """Who generates goes on to verify, under a lease."""
    own = isinstance(fact, ev.TrajectoryRecorded) and fact.provenance is None
    return LEASE_MS if own else None


def action_of(fact: ev.Fact) -> Action | None:
    """Return the action whose outcome a fact is, whoever executed it."""
    match fact:
        case ev.WorldBuilt(world_id=world):
            return "build_world", world, fact.action_key
        case ev.TrajectoryRecorded(trial_id=trial):
            return "generate", trial, fact.action_key
        case ev.TrialVerified(trial_id=trial):
            return "verify", trial, fact.action_key
        case ev.Judged(trial_id=trial):
            return "judge", trial, fact.action_key
        case ev.JudgeCallRecorded(call_key=key):
            return "judge_call", "", key
        case ev.StepApplied(trained=True):
            return "train_step", slot_of(fact), fact.action_key
        case _:
            return None


def executed(site: Site, run_id: str) -> set[Action]:
    """Return what a run executed itself."""
    facts = site.facts(run=run_id)
    done = [action_of(fact) for fact in facts if getattr(fact, "provenance", None) is None]
    return {action for action in done if action is not None}


def counted(actions: set[Action]) -> dict[str, int]:
    """Count actions by kind."""
    return dict(Counter(kind for kind, _, _ in actions))


def inherited(site: Site, run_id: str) -> set[Action]:
    """Return what the lineage of a run has at or below its pinned positions."""
    pins = {each.run_id: each.position for each in site.outcomes[run_id].request.lineage}
    rows = (row.recorded for row in site.store.events[0])
    seen = (row.fact() for row in rows if row.position <= pins.get(row.run_id, 0))
    return {action for fact in seen if (action := action_of(fact)) is not None}


def needless(site: Site, run_id: str) -> set[Action]:
    """Return what a run executed although its lineage had it: nothing, by I9."""
    return executed(site, run_id) & inherited(site, run_id)
