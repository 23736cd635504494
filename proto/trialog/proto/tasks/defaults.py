"""What a run of tasks has when it says nothing, and what is refused of any number of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from trialog.proto.runspec import MAX_STEPS, MAX_TRIALS_PER_STEP

STEP_S = 30 * 86_400.0
TRIAL_S = 86_400.0  # of an agent: its task may give it less

Given = dict[str, Any]


class TasksRefusedError(ValueError):
    """Settings that no run of these tasks can have: pairs of a field and what is wrong with it."""

    def __init__(self, errors: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {message}" for field, message in errors))
        self.errors = list(errors)


def is_of_tasks(given: Given) -> bool:
    """Whether settings ask for a run of tasks."""
    return given.get("tasks") is not None


def preliminary(given: Given) -> Given:
    """Return settings that are valid if the given ones are, however many tasks there will be: for
    naming mistakes before a folder is read. Raises TasksRefusedError."""
    if "agent" not in given:
        message = "say which one plays the tasks: oracle, nop, command or import:MODULE:CLASS"
        raise TasksRefusedError([("agent", message)])
    _check_source(given["tasks"])
    whole = with_defaults(given)
    samples = whole["n_samples"]
    most = MAX_TRIALS_PER_STEP // samples if isinstance(samples, int) and samples > 0 else 1
    return {"n_steps": MAX_STEPS, "prompts_per_step": max(1, most)} | whole


def _check_source(tasks: Any) -> None:
    if isinstance(tasks, str):
        raise TasksRefusedError([("tasks", f"say tasks: {{path: {tasks[:200]}}}")])
    if not isinstance(tasks, dict):
        return  # its validation says what it should be
    given = cast("Given", tasks)
    named = [name for name in ("path", "archive", "manifest") if given.get(name) is not None]
    if len(named) > 1:
        message = f"is given beside tasks.{named[0]}: one of them says which tasks"
        raise TasksRefusedError([(f"tasks.{named[1]}", message)])


def with_defaults(given: Given) -> Given:
    """Return settings with the defaults that hold for tasks, whichever they are."""
    defaults: Given = {"learner": "none", "rubric": "task", "n_samples": 1}
    whole = defaults | given
    timeouts = given.get("timeouts", {})
    if isinstance(timeouts, dict):
        # Of so many tasks nobody knows how long they take; each of them has limits of its own.
        whole["timeouts"] = {"step_s": STEP_S, "trial_s": TRIAL_S} | cast("Given", timeouts)
    return whole
