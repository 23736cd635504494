"""A simulated tree: runs are forked at drawn moments, with drawn changes, and forks of forks."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import ValidationError
from support.outcomes import one_by_one
from support.simulated import World
from trialog.driver.forking import ForkRefusedError
from trialog.proto import events as ev
from trialog.spine.log import Append, new_event

Mode = Literal["recompute", "rescore"]

CHANGES: list[dict[str, Any]] = [
    {},
    {},
    {"rubric": "v2-efficiency"},
    {"rubric": "v1"},
    {"rubric": one_by_one()},
    {"rubric": one_by_one("one-by-one", 2.0, 0.3, 0.1)},
    {"rubric": one_by_one(tidiness="How tidy was it?")},
    {"judge": {"model": "another-judge"}},
    {"lr": 1.0},
    {"n_steps": 3},
    {"n_steps": 1},
    {"n_samples": 3},
    {"max_turns": 3},
    {"seed": 7},
    {"versions": {"agent": "2"}},
    {"versions": {"verifier": "2"}},
    {"versions": {"learner": "2"}},
    {"faults": {"always_fail": []}},
    {"from_step": 1},
    {"from_step": 1, "n_samples": 3},
    {"from_step": 1, "lr": 0.5, "rubric": "v2-efficiency"},
    {"from_step": 2, "n_steps": 3},
]
MODES: list[Mode | None] = [None, None, None, "rescore", "recompute"]


class Forking(NamedTuple):
    """A fork that was made."""

    run_id: str
    parent: str
    body: dict[str, Any]
    mode: Mode | None


class ForkedWorld(World):
    """``calm``: no worker dies and no lease ends, but messages still come twice and late, and
    drivers still change."""

    def __init__(self, seed: int, *, forks: int = 3, calm: bool = False, **settings: Any) -> None:
        self.calm = calm
        if calm:
            self.lease_ms = 10**9
        super().__init__(seed, **settings)
        self.wanted = forks
        self.forkings: list[Forking] = []
        self.refused: list[str] = []
        self.happenings += [(0.06, self._fork), (0.004, self._cancel)]
        if calm:
            self.happenings = [one for one in self.happenings if one[1] != self._kill_worker]

    @property
    def over(self) -> bool:
        """Whether all forks were made, and all runs have ended."""
        return super().over and (len(self.forkings) == self.wanted or self._fork())

    def waits(self) -> bool:
        """See World; where nothing dies, whoever makes the call will end it."""
        return self.calm or super().waits()

    def _fork(self) -> bool:
        """Fork any run, as it is at this moment; False, so that it is no end yet."""
        if len(self.forkings) < self.wanted:
            runs = list(self.outcomes)
            parent = self.draw.choice([self.draw.choice(runs), runs[-1]])  # lines get long
            body, mode = self.draw.choice(CHANGES), self.draw.choice(MODES)
            try:
                run_id = self.fork(parent, mode=mode, **body)
            except (ForkRefusedError, ValidationError) as error:
                self.refused.append(str(error))
            else:
                self.forkings.append(Forking(run_id, parent, body, mode))
        return False

    def _cancel(self) -> None:
        """Somebody cancels a run; its forks go on."""
        run_id = self.draw.choice(list(self.outcomes))
        if not self.ended(run_id):
            self.commit(0, Append([new_event(run_id, ev.RunCancelled("enough"))]))

    def cancelled(self, run_id: str) -> bool:
        """Whether somebody cancelled a run before it had ended by itself."""
        return bool(self.facts(ev.RunCancelled, run=run_id))
