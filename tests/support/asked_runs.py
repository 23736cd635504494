"""Hypothesis strategies for what a run was asked to do: any spec, rubric and code, from small
pools, so that two draws often agree in most."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from trialog.proto import events as ev
from trialog.proto.keys import agent_code, check_code, learner_code, verifier_code
from trialog.proto.rubric import BUILT_IN, Criterion, Rubric
from trialog.proto.runspec import Budget, Faults, Judge, Retries, RunSpec, Timeouts, Versions

VERSIONS = st.none() | st.sampled_from(["1", "2"])
WEIGHTS = st.sampled_from([0, 0.5, 1, 1.0])
RATES = st.sampled_from([0, 0.25, 1.0])
PROMPTS = st.sampled_from([None, "", "Was it caf\xe9?", "Was it cafe\u0301?"])
SCALES = st.sampled_from([[0, 1], [0.0, 1.0], [0, 5], [1, 5]])
CRITERIA = st.sampled_from(["a", "b", "c"])
TRIALS = st.sampled_from(["s0-p0-n0", "s0-p1-n0"])

CODE_NAMES = sorted(
    {
        *(agent_code(RunSpec(agent=agent)) for agent in ("policy", "noop")),
        *(check_code(check) for check in ("correct", "completed")),
        verifier_code(RunSpec()),
        learner_code(RunSpec()),
    }
)
CODE = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(["", "x", "y"]) for name in CODE_NAMES}
)

Json = dict[str, Any]
Strategies = dict[str, st.SearchStrategy[Any]]

_CRITERION: Strategies = {"name": CRITERIA, "weight": WEIGHTS, "version": VERSIONS}
_ASKED: Strategies = _CRITERION | {"prompt": PROMPTS, "scale": SCALES}
_CHECKED: Strategies = _CRITERION | {"check": st.sampled_from(["correct", "completed"])}
ASKED, CHECKED = st.fixed_dictionaries(_ASKED), st.fixed_dictionaries(_CHECKED)

# What is drawn for each field of each part of a run's spec. An input that is not here could enter
# a key unseen, so a test holds that none is missing.
PARTS: dict[type[BaseModel], Strategies] = {
    Criterion: _ASKED | _CHECKED,
    Rubric: {
        "name": st.sampled_from(["r", "q"]),
        "scoring": st.sampled_from(["holistic", "per_criterion", "check"]),
        "criteria": st.lists(
            ASKED | CHECKED, min_size=1, max_size=3, unique_by=lambda each: each["name"]
        ),
    },
    Judge: {
        "model": st.sampled_from(["m", "n"]),
        "temperature": st.sampled_from([0, 0.5, 1, 1.0]),
        "max_tokens": st.sampled_from([10, 1024]),
    },
    Faults: {
        "flaky_trial_rate": RATES,
        "judge_flake_rate": RATES,
        "crash_driver_after_step": st.none() | st.just(0),
        "straggler": st.dictionaries(TRIALS, RATES, max_size=2),
        "hang": st.lists(TRIALS, max_size=2),
        "always_fail": st.lists(TRIALS, max_size=2),
    },
    Versions: dict.fromkeys(("agent", "verifier", "learner"), VERSIONS),
    Retries: {name: st.integers(0, 2) for name in ("trial", "judge", "lost")},
    Timeouts: {name: st.integers(1, 9) for name in ("trial_s", "step_s", "judge_s")},
    Budget: {
        "judge_calls": st.none() | st.integers(0, 9),
        "tokens": st.none() | st.integers(0, 9),
        "usd": st.none() | RATES,
    },
}


def some(part: type[BaseModel]) -> st.SearchStrategy[Json]:
    """Return a strategy for a part of a spec with any of its fields given."""
    return st.fixed_dictionaries({}, optional=PARTS[part])


FIELDS: Strategies = {
    "n_steps": st.integers(1, 3),
    "n_worlds": st.integers(1, 3),
    "prompts_per_step": st.integers(2, 3),
    "n_samples": st.integers(1, 2),
    "max_turns": st.integers(1, 8),
    "lr": st.sampled_from([0, 1, 1.0, 2.5]),
    "rubric": st.sampled_from(sorted(BUILT_IN)) | st.fixed_dictionaries(PARTS[Rubric]),
    "judge": some(Judge),
    "budget": some(Budget),
    "seed": st.none() | st.integers(0, 2),
    "tool_latency_s": RATES,
    "judge_latency_s": RATES,
    "retries": some(Retries),
    "timeouts": some(Timeouts),
    "group_policy": st.fixed_dictionaries(
        {}, optional={"mode": st.sampled_from(["retry", "fail_fast", "min_group"])}
    ),
    "faults": some(Faults),
    "agent": st.sampled_from(["policy", "noop"]),
    "learner": st.sampled_from(["bandit", "none"]),
    # Runs of tasks have a family of their own (tests/property/test_task_keys.py).
    "tasks": st.none(),
    "agent_options": st.just({}),
    "network": st.just("none"),
    "images": st.just({}),
    "versions": some(Versions),
    "provider": st.sampled_from(["bubblewrap", "null"]),
    "labels": st.dictionaries(CRITERIA, CRITERIA, max_size=2),
}
PARTS[RunSpec] = FIELDS


def sound(value: Json, model: type[RunSpec | Rubric]) -> bool:
    """Whether a drawn document is one that a run may have."""
    try:
        model.model_validate(value)
    except ValidationError:
        return False
    return True


def specs() -> st.SearchStrategy[Json]:
    """Return a strategy for the body of ``POST /runs``."""
    return st.fixed_dictionaries({}, optional=FIELDS).filter(lambda spec: sound(spec, RunSpec))


@st.composite
def near(draw: st.DrawFn, spec: Json, fields: set[str]) -> Json:
    """Draw a spec that differs from another in some of its fields only."""
    changed = dict(spec)
    for name in sorted(fields):
        slight = name == "rubric" and isinstance(spec.get(name), dict)
        changed[name] = draw(FIELDS[name] | _near_rubric(spec[name]) if slight else FIELDS[name])
    return changed


@st.composite
def _near_rubric(draw: st.DrawFn, rubric: Json) -> Json:
    """Draw a rubric with one of its criteria taken out, replaced, moved or edited."""
    criteria = [dict(each) for each in rubric["criteria"]]
    place = draw(st.integers(0, len(criteria) - 1))
    match draw(st.sampled_from(["out", "replace", "move", "weight", "prompt", "scale", "version"])):
        case "out":
            del criteria[place]
        case "replace":
            criteria[place] = draw(ASKED | CHECKED)
        case "move":
            criteria.append(criteria.pop(place))
        case "weight":
            criteria[place]["weight"] = draw(WEIGHTS)
        case "version":
            criteria[place]["version"] = draw(VERSIONS)
        case "scale":
            criteria[place]["scale"] = draw(SCALES)
        case _:
            criteria[place] = draw(ASKED) | {"name": criteria[place]["name"]}
    return rubric | {"criteria": criteria}


@st.composite
def requests(
    draw: st.DrawFn, like: ev.RunRequested | None = None, changed: set[str] | None = None
) -> ev.RunRequested:
    """Draw what a run was asked to do. With ``like``, it differs from another run's only in
    ``changed``: names of a spec's fields, and "code"; drawn unless given."""
    if like is None:
        return request(draw(specs()), draw(CODE))
    if changed is None:
        changed = draw(st.sets(st.sampled_from([*sorted(FIELDS), "code"]), max_size=2))
    spec = draw(near(like.spec, changed - {"code"}).filter(lambda spec: sound(spec, RunSpec)))
    return request(spec, draw(CODE) if "code" in changed else like.code)


def request(spec: Json | None = None, code: dict[str, str] | None = None) -> ev.RunRequested:
    """Return the request of a run by its spec, as the API would record it."""
    return ev.RunRequested(RunSpec.model_validate(spec or {}).recorded(), "r", "w", code=code or {})
