"""A run's action keys, from what it was asked to do and the code it counts on.

Driver and workers make them here, so that both mean the same. The driver expects the code that the
run pinned; a worker counts on the code that it runs, and its facts say so: a key on a fact tells
what was executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trialog.proto import events as ev
from trialog.proto import identity
from trialog.proto.canonical import CanonicalText, canonical_text, digest
from trialog.proto.ids import parse_trial_id
from trialog.proto.rubric import UNIT, Rubric
from trialog.proto.runspec import RunSpec, place_of
from trialog.proto.tasks.manifest import Manifest, TaskRef


def agent_code(spec: RunSpec) -> str:
    """Name of the agent's code."""
    return f"agent:{spec.agent}"


def verifier_of(spec: RunSpec) -> str:
    """Name of what verifies: the reference world's own, or the tasks' tests."""
    return "reference" if spec.tasks is None else "harbor"


def verifier_code(spec: RunSpec) -> str:
    """Name of the verifier's code."""
    return f"verifier:{verifier_of(spec)}"


def learner_code(spec: RunSpec) -> str:
    """Name of the learner's code."""
    return f"learner:{spec.learner}"


def check_code(check: str) -> str:
    """Name of the code of a deterministic check."""
    return f"check:{check}"


class Code(NamedTuple):
    """The versions of all code that a run's keys hold; ``checks`` by criterion."""

    agent: str
    verifier: str
    learner: str
    checks: Mapping[str, str]


def code_of(spec: RunSpec, known: Mapping[str, str]) -> Code:
    """Return the versions of a run's code: each as the spec declares it, or else as it is known.

    Code that nobody has told of yet has the version "".
    """
    return Code(
        spec.versions.agent or known.get(agent_code(spec), ""),
        spec.versions.verifier or known.get(verifier_code(spec), ""),
        spec.versions.learner or known.get(learner_code(spec), ""),
        {
            each.name: each.version or known.get(check_code(each.check), "")
            for each in spec.resolved_rubric.criteria
            if each.check is not None
        },
    )


def pinned(spec: RunSpec, known: Mapping[str, str]) -> dict[str, str]:
    """Return the known version of all code that a run's keys hold and whose version its spec does
    not declare: what RunRequested pins."""
    names: dict[str, str | None] = {
        agent_code(spec): spec.versions.agent,
        verifier_code(spec): spec.versions.verifier,
        learner_code(spec): spec.versions.learner,
    }
    wanted = [name for name, version in names.items() if version is None]
    wanted += [
        check_code(each.check)
        for each in spec.resolved_rubric.criteria
        if each.check is not None and each.version is None
    ]
    return {name: known.get(name, "") for name in wanted}


def runs_commands(spec: RunSpec) -> bool:
    """Whether an agent's commands are executed. Which of the providers that do so serves a trial is
    no input; under ``null`` an agent finds nothing."""
    return spec.provider != "null"


def agent_of(spec: RunSpec) -> dict[str, Any]:
    """Return what an agent's try depends on beside its code, limits and faults."""
    agent: dict[str, Any] = {"name": spec.agent, "commands": runs_commands(spec)}
    if spec.tasks is not None:
        agent["options"] = spec.agent_options
    return agent


def limits_of(spec: RunSpec) -> dict[str, Any]:
    """Return the run's limits that an agent's try depends on."""
    if spec.tasks is None:
        return {"max_turns": spec.max_turns}
    return {"trial_s": spec.timeouts.trial_s, "network": spec.network}


def learner_of(spec: RunSpec) -> dict[str, Any]:
    """Return what a step depends on beside its judgments and the learner's code."""
    if spec.learner == "none":
        return {"name": spec.learner}
    return {"name": spec.learner, "lr": spec.lr}


def model_of(spec: RunSpec) -> dict[str, Any]:
    """Return the judge's model and sampling: what every call holds beside its request."""
    return spec.judge.model_dump(mode="json")


class Asked:
    """What one judge call asks: ``criterion`` ("*" for a whole rubric) and the request but for
    the trajectory."""

    __slots__ = ("criterion", "request")

    def __init__(self, criterion: str, request: dict[str, Any]) -> None:
        self.criterion, self.request = criterion, request


HOLISTIC = "*"
"""The criterion of a holistic call; no criterion of a rubric can have this name."""


def asked(rubric: Rubric, trial_id: str, *, verified: bool, seed: int | None) -> Iterator[Asked]:
    """Yield the calls that judging a trial takes, in the rubric's order. Checks take none.

    A criterion's call holds its text, its scale unless that is [0, 1], and never a weight; a
    holistic one the whole rubric, weights included, and the trial's id.
    """
    criteria = [criterion for criterion in rubric.criteria if criterion.check is None]
    if rubric.scoring == "holistic" and criteria:
        sent: dict[str, Any] = {
            "name": rubric.name,
            "weights": {criterion.name: criterion.weight for criterion in criteria},
        }
        prompts = {each.name: each.prompt for each in criteria if each.prompt is not None}
        if prompts:
            sent["prompts"] = prompts
        scales = {each.name: list(each.scale) for each in criteria if each.scale != UNIT}
        if scales:
            sent["scales"] = scales
        request = {"trial_id": trial_id, "rubric": sent, "verified": verified, "seed": seed}
        yield Asked(HOLISTIC, request)
        return
    for each in criteria:
        criterion: dict[str, Any] = {"name": each.name, "prompt": each.prompt}
        if each.scale != UNIT:
            criterion["scale"] = list(each.scale)
        yield Asked(each.name, {"criterion": criterion, "seed": seed})


class Keys:
    """The keys of one run's actions under some code, by ``pinned`` name. ``tasks`` is what the
    run's manifest says, where it has one."""

    def __init__(self, spec: RunSpec, known: Mapping[str, str], tasks: Manifest = ()) -> None:
        self._spec, self._code = spec, code_of(spec, known)
        self._tasks = tasks
        self._rubric = spec.resolved_rubric
        self._rubric_digest = self._rubric.digest
        self._checks = digest(dict(self._code.checks))
        # Written out once: what the keys of all trials share.
        self._model = canonical_text(model_of(spec))
        self._agent = canonical_text(agent_of(spec))
        self._limits = canonical_text(limits_of(spec))
        self._faults = canonical_text({"flaky_trial_rate": spec.faults.flaky_trial_rate})
        self._shared: dict[str, CanonicalText] = {}
        self._worlds: dict[str, str] = {}

    def world(self, world_id: str) -> str:
        """Key of building a world."""
        key = self._worlds.get(world_id)
        if key is None:
            key = self._worlds[world_id] = self._world(world_id)
        return key

    def _world(self, world_id: str) -> str:
        spec = self._spec
        if spec.tasks is None:
            return identity.world_key(world_id=world_id, seed=spec.seed)
        return identity.image_key(
            environment=self.task(world_id).environment,
            images=dict(spec.images),
            provider=spec.provider,
            network=spec.network,
        )

    def task(self, world_id: str) -> TaskRef:
        """Return the task that a world is of. Raises LookupError for a run of none."""
        return self._tasks[int(world_id[1:])]

    def _task_of(self, trial_id: str) -> TaskRef | None:
        if self._spec.tasks is None:
            return None
        return self._tasks[place_of(self._spec, parse_trial_id(trial_id))]

    def _given(self, task: TaskRef) -> dict[str, str]:
        """What an agent has of its task: the solution is the oracle's alone."""
        given = {"agent": task.agent}
        if self._spec.agent == "oracle":
            given["solution"] = task.solution
        return given

    def generate(self, trial_id: str, world_digest: str, weights_digest: str) -> str:
        """Key of an agent's try."""
        spec, task = self._spec, self._task_of(trial_id)
        return identity.generate_key(
            task=None if task is None else self._given(task),
            code=self._code.agent,
            agent=self._agent,
            world_digest=world_digest,
            weights_digest=weights_digest,
            trial_id=trial_id,
            seed=spec.seed,
            limits=self._limits,
            fault_rates=self._faults,
        )

    def verify(self, world_id: str, trajectory_digest: str) -> str:
        """Key of checking a trajectory that was made in a world."""
        return identity.verify_key(
            task=None if self._spec.tasks is None else self.task(world_id).verifier,
            code=self._code.verifier,
            world_key=self.world(world_id),
            trajectory_digest=trajectory_digest,
            verifier=verifier_of(self._spec),
        )

    def calls(self, fact: ev.TrialVerified) -> list[tuple[Asked, str]]:
        """Return what judging a verified trial asks, each with its call key."""
        wanted = asked(self._rubric, fact.trial_id, verified=fact.verified, seed=self._spec.seed)
        return [
            (
                each,
                identity.call_key(
                    model=self._model,
                    request=self._request(each),
                    trajectory_digest=fact.trajectory,
                ),
            )
            for each in wanted
        ]

    def _request(self, each: Asked) -> dict[str, Any]:
        """Return a call's request with the part written out that all trials share."""
        part = "rubric" if each.criterion == HOLISTIC else "criterion"
        text = self._shared.get(each.criterion)
        if text is None:
            text = self._shared[each.criterion] = canonical_text(each.request[part])
        return each.request | {part: text}

    def judge(self, fact: ev.TrialVerified) -> str:
        """Key of judging a verified trial. Twins with one trajectory have a key each."""
        verification: dict[str, Any] = {
            "key": fact.action_key,
            "trajectory": fact.trajectory,
            "verified": fact.verified,
            "found_doc": fact.found_doc,
        }
        if fact.reward is not None or fact.rewards:
            verification |= {"reward": fact.reward, "rewards": fact.rewards}
        return identity.judge_key(
            checks=self._checks,
            trial_id=fact.trial_id,
            verification=verification,
            rubric_digest=self._rubric_digest,
            model=self._model,
            seed=self._spec.seed,
        )

    def step(self, step: int, prior_digest: str, judgments: Sequence[str]) -> str:
        """Key of one optimizer step over its judgments' digests, in their order."""
        return identity.step_key(
            code=self._code.learner,
            step=step,
            prior_digest=prior_digest,
            judgments=list(judgments),
            learner=learner_of(self._spec),
        )

    def step_inputs(self, step: int, weights_digest: str, worlds: Sequence[str]) -> str:
        """Key of a whole step: of all that its trials, judgments and training follow from.

        ``worlds`` are those that its prompts play in. Equal keys have equal action keys all
        through, so one look-up stands for all of them.
        """
        spec, code = self._spec, self._code
        return identity.action_key(
            "step",
            digest([code.agent, code.verifier, code.learner, dict(code.checks)]),
            step=step,
            weights=weights_digest,
            worlds=[self.world(world) for world in worlds],
            trials=self._trials(worlds),
            agent=agent_of(spec) | limits_of(spec),
            faults={"flaky_trial_rate": spec.faults.flaky_trial_rate},
            rubric=self._rubric_digest,
            model=self._model,
            seed=spec.seed,
            learner=learner_of(spec),
        )

    def _trials(self, worlds: Sequence[str]) -> list[Any]:
        """What the trials of a step are of: so many of each world, or which tasks."""
        spec = self._spec
        if spec.tasks is None:
            return [spec.n_worlds, spec.prompts_per_step, spec.n_samples]
        tasks = [self.task(world) for world in worlds]
        return [[self._given(task), task.verifier] for task in tasks] + [spec.n_samples]
