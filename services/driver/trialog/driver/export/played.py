"""How the steps of a task went in one trial. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trialog.driver.export.given import Given
from trialog.driver.export.kept import Json, Kept, Part
from trialog.proto.tasks.config import Step, TaskConfig


def steps_of(kept: Kept, config: TaskConfig | None, given: Given) -> list[Json] | None:
    """Return the steps in their order, those that were not played too; None of a task without.

    ``given`` has what verifiers left; what was graded on the spot stands in the trajectory.
    """
    known: Sequence[Step] = config.steps if config else ()
    names = [step.name for step in known] or [part.step for part in kept.parts if part.step]
    if not names:
        return None
    played = {part.step: part for part in kept.parts}
    gates = {step.name: step.min_reward for step in known}
    return list(_steps([(name, played.get(name)) for name in names], gates, given))


def _steps(
    steps: Sequence[tuple[str, Part | None]],
    gates: dict[str, float | dict[str, float] | None],
    given: Given,
) -> Iterator[Json]:
    following = [part is not None for _, part in steps[1:]] + [True]
    for (name, part), goes_on in zip(steps, following, strict=True):
        rewards = None if part is None else given.get(name) or part.rewards
        gate = gates.get(name)
        yield {
            "name": name,
            "played": part is not None,
            "n_turns": part and part.n_turns,
            "rewards": rewards,
            "error": (part and part.error) or None,
            "message": (part and part.message) or None,
            "min_reward": gate,
            # A step whose grades are missing ends the try too: then it is no gate.
            "stopped": part is not None and not goes_on and gate is not None and bool(rewards),
        }
