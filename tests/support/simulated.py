"""Whole runs in one thread, in an order drawn from a seed, with deaths at every moment.

Every process may die between any two of its steps, a message may come twice or late, a replaced
driver goes on writing or leaves a decision half recorded, a worker whose lease ended finishes all
the same.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from typing import Any

from support.site import LEASE_MS, RUN, Site
from trialog.proto.runspec import RunSpec
from trialog.proto.work import CALL, parse_key

__all__ = ["LEASE_MS", "RUN", "World"]


class World(Site):
    """Everything there is; ``step()`` lets something happen."""

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(seed)
        self.workers: list[tuple[int, Generator[None]]] = []
        self.incarnation = 100
        self.run(**settings)
        self.drivers = [self.new_driver()]
        self.happenings = [
            (8.0, self._drive),
            (6.0, self._deliver),
            (20.0, self._work),
            (1.5, self._pass_time),
            (0.25, self._kill_worker),
            (0.12, self._replace_driver),
        ]

    @property
    def spec(self) -> RunSpec:
        """The first run's settings."""
        return self.outcomes[RUN].spec

    def chunk(self) -> int:
        """Cut decisions anywhere."""
        return self.draw.choice((1, 3, 500))

    def breaks_off(self) -> bool:
        """Now and then a driver dies with a decision half recorded; another one decides on."""
        return self.draw.random() < 0.02

    def waits(self) -> bool:
        """Give up on a call that another makes, sooner or later."""
        return self.draw.random() < 0.7

    @property
    def over(self) -> bool:
        """Whether the ends of all runs are on the log."""
        return all(run.state == "ended" for run in self.store.runs.values())

    def step(self) -> None:
        """Let one thing happen, drawn by its weight."""
        weights = [weight for weight, _ in self.happenings]
        self.draw.choices([call for _, call in self.happenings], weights)[0]()

    def go(self, most: int = 60_000) -> None:
        """Step until all runs have ended and the last driver knows."""
        for _ in range(most):
            if self.over:
                self.drivers[-1].step()
                return
            self.step()
        raise AssertionError(f"not ended after {most} steps: {self.verdicts}")

    def _drive(self) -> None:
        self.draw.choice(self.drivers).step()

    def _replace_driver(self) -> None:
        """Another driver takes over; the old one may live on without knowing, or be dead."""
        self.drivers = [*self.drivers[-1:], self.new_driver()][-self.draw.choice((1, 2)) :]

    def _pass_time(self) -> None:
        self.clock.advance(self.draw.choice((1, 30, 200, LEASE_MS / 2)))

    def _deliver(self) -> None:
        """Hand any piece of work, done or not, to a new worker: messages come late and twice."""
        rows = [row for row in self.store.work.values() if row.kind != CALL]
        todo = [row for row in rows if not row.done]
        if rows:
            self.incarnation += 1
            row = self.draw.choice(todo if todo and self.draw.random() < 0.7 else rows)
            self.workers.append(
                (self.incarnation, self.worker(self.incarnation, parse_key(row.key)))
            )

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
