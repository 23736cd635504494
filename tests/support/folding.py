"""A run without services: decide and fold in a loop, the work's outcomes given by the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trialog.driver import state as fold
from trialog.driver.decide import Decision, decide
from trialog.driver.state import RunState
from trialog.proto import events as ev
from trialog.proto.ids import parse_trial_id
from trialog.proto.policy import initial_weights
from trialog.proto.runspec import RunSpec, world_of
from trialog.proto.tasks.manifest import Manifest

RUN = "r-abcdefghijklmnop"


class Folded:
    """A run's log in memory. Slots are kept as the real log keeps them: the first fact wins."""

    def __init__(self, manifest: Manifest = (), /, **settings: Any) -> None:
        self.spec = RunSpec.model_validate(settings)
        weights = initial_weights(self.spec.n_worlds)
        request = ev.RunRequested(self.spec.recorded(), RUN, str(len(weights)))
        self.state: RunState = fold.begin(RUN, 0, request, manifest)
        self.facts: list[ev.Fact] = [request]
        self.now_ms = 1_000_000.0

    def record(self, *facts: ev.Fact) -> None:
        """Put facts on the log and fold them."""
        for fact in facts:
            self.facts.append(fact)
            fold.evolve(self.state, fact, len(self.facts), self.now_ms)

    def decide(self) -> Decision:
        """Return what follows now, without recording it."""
        return decide(self.state, self.now_ms, lambda: 0.5)

    def settle(self) -> list[ev.Fact]:
        """Record what follows until nothing does; return it."""
        made: list[ev.Fact] = []
        while facts := self.decide().facts:
            assert len(made) < 10_000, "deciding does not come to an end"
            self.record(*facts)
            self.state.to_close.clear()
            made.extend(facts)
        return made

    def build_worlds(self) -> list[ev.Fact]:
        """Settle, build every world asked for, and settle again."""
        self.settle()
        for world in list(self.state.worlds):
            self.record(ev.WorldBuilt(world, "k", f"digest-{world}"))
        return self.settle()

    def judged(self, trial_id: str, reward: float = 1.0) -> ev.Judged:
        """Return a trial's judgment."""
        name = parse_trial_id(trial_id)
        world = world_of(self.spec, name)
        digest = f"judgment-{trial_id}-{reward}"
        return ev.Judged(trial_id, name.step, world, "k", digest, reward - 1, reward, True, 1, 2)

    def failed(
        self, trial_id: str, n: int, stage: str = "generate", failure: str = "injected"
    ) -> ev.TrialAttemptFailed:
        """Return a failed attempt."""
        return ev.TrialAttemptFailed(trial_id, stage, n, failure, failure == "injected", "why")

    def applied(self) -> ev.StepApplied:
        """Return the result of the step that was asked for last."""
        order = next(f for f in reversed(self.facts) if isinstance(f, ev.StepRequested))
        return ev.StepApplied(
            step=order.step,
            action_key=order.action_key,
            trained=True,
            prior_digest=order.prior_digest,
            digest=f"weights-{order.step + 1}",
            version=order.step + 1,
            n_trials=order.n_scored,
            n_skipped=order.n_skipped,
        )

    def of(self, *kinds: type[ev.Fact], where: Callable[[Any], bool] = lambda _: True) -> list[Any]:
        """Return the log's facts of some kinds."""
        return [fact for fact in self.facts if isinstance(fact, kinds) and where(fact)]
