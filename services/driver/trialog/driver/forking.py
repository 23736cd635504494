"""What a fork is asked to do, from its parent's settings and what is to differ. Pure.

A fork inherits every setting, faults included, but for the crash of the driver: that happened. What
is given is merged over it, mapping by mapping; a rubric and a list are replaced whole.
"""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple, cast

from trialog.proto import events as ev
from trialog.proto.ids import InvalidIdError, parse_trial_id
from trialog.proto.runspec import MAX_STEPS, RunSpec

Mode = Literal["recompute", "rescore"]
# What a run that only judges has a use for; all else would change nothing.
RESCORED = frozenset(
    {"rubric", "judge", "budget", "labels", "retries", "timeouts", "judge_latency_s", "faults"}
)
_WHOLE = frozenset({"rubric"})


class ForkRefusedError(ValueError):
    """A fork that cannot be meant. ``errors`` are pairs of a field and what is wrong with it."""

    def __init__(self, errors: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {message}" for field, message in errors))
        self.errors = errors


class Ancestor(NamedTuple):
    """The run that is forked: what it was asked to do, how far it is, and the log's end then."""

    run_id: str
    request: ev.RunRequested
    steps_applied: int
    steps_begun: int
    position: int


def kept_mode(parent: Ancestor) -> Mode:
    """Return the mode of a fork that asks for none: that of its parent."""
    return "rescore" if parent.request.mode == "rescore" else "recompute"


def split(overrides: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the settings among a fork's body, and its ``from_step``. Raises ForkRefusedError."""
    settings = dict(overrides)
    from_step = settings.pop("from_step", 0)
    if isinstance(from_step, float) and from_step.is_integer():
        from_step = int(from_step)  # 1.0 is a whole number in JSON
    if isinstance(from_step, bool) or not isinstance(from_step, int) or from_step < 0:
        raise ForkRefusedError([("from_step", "must be a whole number, 0 or more")])
    if from_step > MAX_STEPS:
        raise ForkRefusedError([("from_step", f"must be at most {MAX_STEPS}")])
    unknown = sorted(set(settings) - set(RunSpec.model_fields))
    if unknown:
        message = "is no setting of a run, so a fork cannot change it"
        raise ForkRefusedError([(name, message) for name in unknown])
    return settings, from_step


def check(parent: Ancestor, settings: dict[str, Any], from_step: int, mode: Mode) -> None:
    """Raise ForkRefusedError for what no fork of this parent can do."""
    errors: list[tuple[str, str]] = []
    if from_step > parent.steps_applied:
        done = parent.steps_applied
        message = f"is {from_step}, but {parent.run_id} has {done} applied step(s)"
        errors.append(("from_step", message))
    if from_step and mode == "recompute" and parent.request.mode == "rescore":
        message = f"has nothing to keep: {parent.run_id} only judged, its steps trained nothing"
        errors.append(("from_step", message))
    if from_step and "n_worlds" in settings:
        was = parent.request.spec["n_worlds"]
        if settings["n_worlds"] != was:
            message = f"stays {was} where steps are kept: the weights are of those worlds"
            errors.append(("n_worlds", message))
    if mode == "rescore":
        if from_step:
            errors.append(("from_step", "has no meaning with mode=rescore: nothing is trained"))
        for name in sorted(set(settings) - RESCORED):
            errors.append((name, "changes nothing with mode=rescore: trajectories are kept"))
        if parent.steps_begun == 0:
            errors.append(("mode", f"{parent.run_id} has no trajectory to score yet"))
    if errors:
        raise ForkRefusedError(errors)


def merged(parent: Ancestor, settings: dict[str, Any], mode: Mode) -> str:
    """Return a fork's settings as JSON text, not validated yet."""
    inherited = dict(parent.request.spec)
    inherited["faults"] = inherited["faults"] | {"crash_driver_after_step": None}
    if mode == "rescore":
        inherited["n_steps"] = parent.steps_begun
    whole = _over(inherited, settings)
    whole["faults"] = _faults_of(whole, inherited["faults"], settings.get("faults"))
    return json.dumps(whole)


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return one mapping over another, as deep as both are mappings."""
    result = dict(below)
    for name, value in above.items():
        was = below.get(name)
        if isinstance(was, dict) and isinstance(value, dict) and name not in _WHOLE:
            result[name] = _over(cast("dict[str, Any]", was), cast("dict[str, Any]", value))
        else:
            result[name] = value
    return result


def _faults_of(whole: dict[str, Any], inherited: dict[str, Any], given: Any) -> Any:
    """Return the faults without inherited ones of trials that the fork does not have."""
    if not isinstance(given, dict | None) or not isinstance(whole["faults"], dict):
        return whole["faults"]  # no mapping: its validation says so
    mine = cast("dict[str, Any]", given or {})
    faults = dict(cast("dict[str, Any]", whole["faults"]))
    for name in ("hang", "always_fail"):
        if name not in mine:
            faults[name] = [trial for trial in inherited[name] if _is_in(whole, trial)]
    for trial in inherited["straggler"]:
        slowed = faults["straggler"]
        if isinstance(slowed, dict) and not _is_in(whole, trial):
            named = mine.get("straggler")
            if not isinstance(named, dict) or trial not in named:
                faults["straggler"] = {t: s for t, s in slowed.items() if t != trial}
    return faults


def _is_in(whole: dict[str, Any], trial_id: str) -> bool:
    try:
        name = parse_trial_id(trial_id)
        return (
            name.step < whole["n_steps"]
            and name.prompt < whole["prompts_per_step"]
            and name.sample < whole["n_samples"]
        )
    except (InvalidIdError, TypeError, KeyError):
        return True  # the settings are wrong: their validation says how


def request_of(
    parent: Ancestor, spec: RunSpec, code: dict[str, str], weights: str, from_step: int, mode: Mode
) -> ev.RunRequested:
    """Return the fork's RunRequested. Raises ForkRefusedError for steps beyond its own."""
    if from_step > spec.n_steps:
        message = f"is {from_step}, but the fork's n_steps is {spec.n_steps}"
        raise ForkRefusedError([("from_step", message)])
    return ev.RunRequested(
        spec.recorded(),
        parent.request.root,
        weights,
        parent.run_id,
        [ev.Provenance(parent.run_id, parent.position), *parent.request.lineage],
        code,
        mode,
        from_step,
    )
