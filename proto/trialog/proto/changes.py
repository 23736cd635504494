"""Why a fork's action keys differ from its parent's, in words. Pure.

Of each kind of action, for equal inputs from upstream: what a plan gives as the reason why an
action of the fork is not found among those of its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.keys import HOLISTIC, Code, asked, code_of, model_of, runs_commands
from trialog.proto.runspec import RunSpec
from trialog.proto.tasks.manifest import Manifest

_NAMED = 3


class _Side:
    """What one of the two runs was asked to do."""

    def __init__(self, request: ev.RunRequested, tasks: Manifest) -> None:
        self.tasks = tasks
        self.spec: RunSpec = runspec.load(request.spec)
        self.code: Code = code_of(self.spec, request.code)
        # Of a trial that is the same on both sides: which one it is does not matter.
        calls = asked(self.spec.resolved_rubric, "", verified=False, seed=None)
        self.calls: dict[str, dict[str, Any]] = {each.criterion: each.request for each in calls}


def changes(
    parent: ev.RunRequested,
    fork: ev.RunRequested,
    tasks: tuple[Manifest, Manifest] = ((), ()),
) -> dict[str, list[str]]:
    """Return, for each kind of action, the reasons why the keys of the fork's actions are others.

    A kind without a reason has the parent's keys wherever what it depends on is the same. A reason
    for ``judge_call`` may concern some of the calls only: it names their criterion; one for tasks
    names those that it concerns. ``tasks`` are the parent's and the fork's.
    """
    one, other = _Side(parent, tasks[0]), _Side(fork, tasks[1])
    return {kind: list(reasons(one, other)) for kind, reasons in _KINDS.items()}


def _changed(what: str, before: Any, after: Any) -> Iterator[str]:
    if before != after:
        yield f"{what} changed: {_said(before)} -> {_said(after)}"


def _code(what: str, before: str, after: str) -> Iterator[str]:
    if before != after:
        yield f"{what} changed" if after else f"{what} not known yet"


def _said(value: Any) -> str:
    return "none" if value is None else str(value)


def _seed(one: _Side, other: _Side) -> Iterator[str]:
    yield from _changed("seed", one.spec.seed, other.spec.seed)


def _tasks(one: _Side, other: _Side, **parts: str) -> Iterator[str]:
    """What tasks are other than those at the same place of the parent's, of some of their parts:
    ``parts`` has each part's name by what it is called."""
    known = {task.name for task in one.tasks}
    moved: dict[str, None] = {}
    added: dict[str, None] = {}
    for what, part in parts.items():
        changed: list[str] = []
        for place, task in enumerate(other.tasks):
            before = one.tasks[place] if place < len(one.tasks) else None
            if before is None and task.name not in known:
                added[task.name] = None
            elif before is None or getattr(task, part) != getattr(before, part):
                if before is not None and before.name == task.name:
                    changed.append(task.name)
                else:
                    moved[task.name] = None
        if changed:
            yield f"{what} changed: {_listed(changed)}"
    if moved:
        left = {task.name for task in other.tasks}
        gone = [task.name for task in one.tasks if task.name not in left]
        cause = f" ({_listed(gone)} {'is' if len(gone) == 1 else 'are'} gone)" if gone else ""
        yield f"another task stands at its place: {_listed([*moved])}{cause}"
    if added:
        yield f"task added: {_listed([*added])}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _build_world(one: _Side, other: _Side) -> Iterator[str]:
    if other.spec.tasks is None:
        yield from _seed(one, other)
        return
    yield from _tasks(one, other, environment="environment")
    yield from _built_with(one, other)


def _built_with(one: _Side, other: _Side) -> Iterator[str]:
    for field in ("images", "provider", "network"):
        if getattr(one.spec, field) != getattr(other.spec, field):
            yield f"{field} changed"


def _generate(one: _Side, other: _Side) -> Iterator[str]:
    before, after = one.spec, other.spec
    solution = {"solution": "solution"} if after.agent == "oracle" else {}
    yield from _tasks(one, other, task="agent", **solution)
    if after.tasks is not None:
        if before.agent_options != after.agent_options:
            yield "agent_options changed"
        yield from _changed("trial_s", before.timeouts.trial_s, after.timeouts.trial_s)
        yield from _changed("network", before.network, after.network)
    yield from _changed("agent", before.agent, after.agent)
    if before.agent == after.agent:
        yield from _code("agent code", one.code.agent, other.code.agent)
    if runs_commands(before) != runs_commands(after):
        yield from _changed("provider", before.provider, after.provider)
    if after.tasks is None:
        yield from _changed("max_turns", before.max_turns, after.max_turns)
    yield from _seed(one, other)
    rates = before.faults.flaky_trial_rate, after.faults.flaky_trial_rate
    yield from _changed("flaky_trial_rate", *rates)


def _verify(one: _Side, other: _Side) -> Iterator[str]:
    if other.spec.tasks is None:
        yield from _seed(one, other)
    else:
        yield from _tasks(one, other, environment="environment", tests="verifier")
        yield from _built_with(one, other)
    yield from _code("verifier code", one.code.verifier, other.code.verifier)


def _model(one: _Side, other: _Side) -> Iterator[str]:
    before, after = model_of(one.spec), model_of(other.spec)
    for name in after:
        yield from _changed(f"judge {name}", before.get(name), after[name])


def _judge_call(one: _Side, other: _Side) -> Iterator[str]:
    """Only what the fork would call counts: a criterion that is gone costs nothing."""
    if not other.calls:
        return
    yield from _model(one, other)
    yield from _seed(one, other)
    before, after = one.calls, other.calls
    scoring = one.spec.resolved_rubric.scoring, other.spec.resolved_rubric.scoring
    if HOLISTIC in after and HOLISTIC not in before and scoring[0] != scoring[1]:
        yield from _changed("scoring", *scoring)
    elif HOLISTIC in after:
        sent = after[HOLISTIC]["rubric"]
        nothing = {"rubric": {"name": sent["name"], "weights": {}}}
        yield from _whole(before.get(HOLISTIC, nothing)["rubric"], sent)
    elif HOLISTIC in before:
        yield from _changed("scoring", *scoring)
    else:
        for name, request in after.items():
            if name not in before:
                yield f"criterion {name}: added"
            else:
                yield from _fields(name, before[name]["criterion"], request["criterion"])


def _fields(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What differs of one criterion. A prompt is too long to be shown."""
    for field in [*after, *(before.keys() - after.keys())]:
        if before.get(field) != after.get(field):
            yield f"criterion {name}: {field} changed"


def _whole(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What differs of a rubric that is sent whole: its name, or what it says by criterion."""
    yield from _changed("rubric name", before["name"], after["name"])
    was, now = _by_criterion(before), _by_criterion(after)
    for name in [*now, *(was.keys() - now.keys())]:
        if name not in was:
            yield f"criterion {name}: added"
        elif name not in now:
            yield f"criterion {name}: removed"
        else:
            yield from _fields(name, was[name], now[name])


def _by_criterion(sent: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Turn {"weights": {name: weight}, "prompts": {name: prompt}} the other way round."""
    found: dict[str, dict[str, Any]] = {name: {} for name in sent["weights"]}
    for field, by_name in sent.items():
        if field != "name":
            for name, value in by_name.items():
                found[name][field.removesuffix("s")] = value
    return found


def _judge(one: _Side, other: _Side) -> Iterator[str]:
    if one.spec.resolved_rubric.digest != other.spec.resolved_rubric.digest:
        yield "rubric digest changed"
    yield from _model(one, other)
    yield from _seed(one, other)
    for name, version in other.code.checks.items():
        if name in one.code.checks:
            for reason in _code("check code", one.code.checks[name], version):
                yield f"{reason}: {name}"


def _train_step(one: _Side, other: _Side) -> Iterator[str]:
    before, after = one.spec, other.spec
    yield from _changed("learner", before.learner, after.learner)
    if before.learner == after.learner:
        yield from _code("learner code", one.code.learner, other.code.learner)
    if before.lr != after.lr and after.learner != "none":
        yield f"learner settings changed: lr {before.lr} -> {after.lr}"


_KINDS: dict[str, Callable[[_Side, _Side], Iterator[str]]] = {
    "build_world": _build_world,
    "generate": _generate,
    "verify": _verify,
    "judge_call": _judge_call,
    "judge": _judge,
    "train_step": _train_step,
}
