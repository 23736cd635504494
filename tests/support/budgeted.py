"""The simulated run under a budget: judges pause it at its limit, somebody resumes it with more."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from support.simulated import LEASE_MS, RUN, World
from trialog.judge.budget import exhausted
from trialog.proto import events as ev
from trialog.proto.keys import Asked
from trialog.proto.work import CALL, WorkName, call_work_key
from trialog.spine.budget import Budget, Cost
from trialog.spine.log import Append, Claim, Fail, Finish, GiveBack, NewWork, Verdict, new_event

WORST = Cost(100, 1000)


class BudgetedWorld(World):
    """``moments`` has (calls spent and reserved, their limit, calls made) after every step."""

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(seed, **settings)
        self.fences: dict[int, int] = {}
        self.moments: list[tuple[int, int, int]] = []

    @property
    def budget(self) -> Budget:
        """The run's budget now."""
        found = self.store.budget(RUN)
        assert found is not None
        return found

    def step(self) -> None:
        """Let one thing happen, and look at the budget."""
        if self.draw.random() < 0.05:
            self._steer()
        else:
            super().step()
        now = self.budget
        assert now.limits.calls is not None
        out = now.spent.calls + now.reserved.calls
        self.moments.append((out, now.limits.calls, self.http_calls.total()))

    def _steer(self) -> None:
        """Somebody pauses a run that runs, or resumes one that is paused: with as much, or more."""
        now = self.budget
        if now.run_state == "running" and self.draw.random() < 0.1:
            self.commit(0, Append([new_event(RUN, ev.RunPaused(now.pauses))]))
        elif now.run_state == "paused":
            calls, tokens, _ = now.limits
            assert calls is not None and tokens is not None
            limits = {
                "judge_calls": calls + self.draw.choice((0, 1, 3)),
                "tokens": tokens + self.draw.choice((0, 100, 200)),
                "usd": None,
            }
            resumed = ev.RunResumed(now.pauses - 1, self.draw.choice((limits, None)))
            self.commit(0, Append([new_event(RUN, resumed)]))

    def _budgeted(self, me: int, name: WorkName, verdict: Verdict) -> Generator[None]:
        self.fences[me] = verdict.fence
        yield from World._judge(self, me, name, verdict)

    def _call(
        self, me: int, name: WorkName, asked: Asked, key: str
    ) -> Generator[None, None, str | None]:
        """As a judge does it; what is paused or has no room is given back."""
        work_key, expect = call_work_key(RUN, key), 0
        while True:
            started = ev.JudgeCallStarted(name.subject, key, expect + 1, asked.criterion, "m")
            work = NewWork(CALL, RUN, WORST)
            claim = Claim(work_key, LEASE_MS, expect, [new_event(RUN, started)], work)
            verdict = self.commit(me, claim)
            self.verdicts[f"call {verdict.answer}"] += 1
            yield
            match verdict.answer:
                case "done":
                    return "found"
                case "stale":
                    expect = verdict.fence
                case "ok":
                    break
                case "unfunded" if reason := exhausted(now := self.budget, WORST):
                    yield
                    pause = new_event(RUN, ev.RunPaused(now.pauses, reason))
                    self.commit(me, Append([pause]))
                    yield
                    return self._gives_back(me, name)
                case _:
                    return self._gives_back(me, name)
        if self.draw.random() < 0.1:  # nobody was there to be asked
            self.commit(me, Fail(work_key, verdict.fence))
            return self._gives_back(me, name)
        self.http_calls[key] += 1
        yield
        fact = self.outcomes[RUN].reply(name.subject, asked, key, verdict.failures)
        events = [new_event(RUN, fact)]
        answer = self.commit(me, Finish(work_key, verdict.fence, events, paid=Cost(60, 600))).answer
        yield
        return "made" if answer == "ok" else self._gives_back(me, name)

    def _gives_back(self, me: int, name: WorkName) -> None:
        self.verdicts[f"back {self.commit(me, GiveBack(name.key, self.fences[me])).answer}"] += 1

    _stages = World._stages | {"judge": _budgeted}
