"""A tree of runs in order, without deaths: each goes to its end when it is told to."""

from __future__ import annotations

from collections import Counter
from typing import Any

from support.outcomes import Outcomes
from support.site import Site
from trialog.proto import events as ev
from trialog.proto.slots import slot_of
from trialog.proto.work import CALL, call_work_key, parse_key
from trialog.spine.log import Append, Claim, Finish, NewWork, new_event

_MOST_ROUNDS = 3000
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
        """Return another tree in which no more has happened than up to a position: what was under
        way then is never gone on with."""
        tree = Tree()
        tree.blobs, tree.code = dict(self.blobs), self.code
        for row in self.store.events[0][:until]:
            fact = row.recorded.fact()
            tree._again(row.recorded.run_id, fact)
            assert tree.store.heads[0].position == row.recorded.position
        return tree

    def _again(self, run_id: str, fact: ev.Fact) -> None:
        """Record a fact of another tree. A call's work comes with its claim."""
        events = [new_event(run_id, fact)]
        match fact:
            case ev.RunRequested():
                self.outcomes[run_id] = Outcomes(fact, self.blobs)
            case ev.JudgeCallStarted(call_key=key, fence=fence):
                work_key = call_work_key(self.outcomes[run_id].request.root, key)
                work = NewWork(CALL, run_id)
                claim = Claim(work_key, int(self.lease_ms), fence - 1, events, work)
                self.commit(1, claim).check()
                return
            case ev.JudgeCallRecorded(call_key=key, provenance=None):
                work_key = call_work_key(self.outcomes[run_id].request.root, key)
                fence = self.store.work[work_key].fence
                self.commit(1, Finish(work_key, fence, events)).check()
                return
            case _:
                pass
        self.commit(1, Append(events)).check()


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
