"""What a run is asked to do: the settings of ``POST /runs`` and of a run file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    model_validator,
)

from trialog.proto import agents, images
from trialog.proto.agents import REFERENCE_AGENTS, TASK_AGENTS, check_name
from trialog.proto.ids import TrialName, parse_trial_id
from trialog.proto.rubric import BUILT_IN, RECORDED, Rubric

MAX_TRIALS_PER_STEP = 20_000
MAX_STEPS = 100_000

Rate = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=30 * 86_400, allow_inf_nan=False)]
Delay = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
_NUMBER = "(0|[1-9][0-9]{0,8})"
TrialId = Annotated[str, Field(pattern=f"^s{_NUMBER}-p{_NUMBER}-n{_NUMBER}$")]
Agent = Annotated[
    str, AfterValidator(check_name), Field(json_schema_extra={"pattern": agents.PATTERN})
]
ImageSource = Annotated[
    str, AfterValidator(images.check_source), Field(json_schema_extra={"pattern": images.PATTERN})
]
LabelKey = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._/-]{0,62}$")]
LabelValue = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f]*$")]


_COUNTS: tuple[Any, ...] = (int, int | None)


class _Part(BaseModel):
    # A count given as "3" or true is a mistake in a run file, not a three: strict.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _one_number(cls, given: Any) -> Any:
        """Take 3.0 for the 3 that it is: JSON has one number, and some write it so."""
        if not isinstance(given, dict):
            return given
        fields = cast("dict[str, Any]", given)
        counts = {
            name: int(value)
            for name, value in fields.items()
            if isinstance(value, float) and value.is_integer() and abs(value) < 2**53
            if name in cls.model_fields and cls.model_fields[name].annotation in _COUNTS
        }
        return fields | counts if counts else given


class Retries(_Part):
    """How often a failed attempt is tried again, by stage."""

    trial: int = Field(default=1, ge=0, le=100, description="Retries of a trial's generation.")
    judge: int = Field(default=2, ge=0, le=100, description="Retries of a trial's judgment.")
    lost: int = Field(default=10, ge=0, le=1000, description="Workers a trial may lose.")


class Timeouts(_Part):
    """Limits in seconds. Trial and judge run from the claim, the step from its first trial."""

    trial_s: Seconds = 300.0
    step_s: Seconds = 600.0
    judge_s: Seconds = 60.0


class Straggler(_Part):
    """Once a part of a step's trials has ended, the rest has a grace time to end."""

    after_fraction: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.9
    grace_s: Delay = 30.0


class GroupPolicy(_Part):
    """What a skipped trial means for its group (the trials of one prompt) and its step.

    ``retry``: the step goes on without it. ``fail_fast``: the run fails. ``min_group``: a group
    with fewer than ``min_size`` scored trials is left out of the step whole.
    """

    mode: Literal["retry", "fail_fast", "min_group"] = "retry"
    min_size: int = Field(default=1, ge=1, le=MAX_TRIALS_PER_STEP)
    straggler: Straggler | None = None
    max_untrained_steps: int = Field(
        default=1,
        ge=1,
        le=MAX_STEPS,
        description="Steps in a row with nothing scored that fail the run.",
    )


class Faults(_Part):
    """Faults to inject, for trying out what a run survives."""

    flaky_trial_rate: Rate = 0.0
    judge_flake_rate: Rate = 0.0
    crash_driver_after_step: int | None = Field(default=None, ge=0, le=MAX_STEPS)
    straggler: dict[TrialId, Delay] = Field(
        default={}, description="Seconds by which a trial is slowed down, every attempt."
    )
    hang: list[TrialId] = Field(default=[], description="Trials whose first attempt never ends.")
    always_fail: list[TrialId] = Field(default=[], description="Trials that fail every attempt.")


Version = Annotated[str, Field(pattern=r"^[\w.+-]{1,64}$")]


class Judge(_Part):
    """The model that scores, and how it is sampled: part of every judge call's identity."""

    model: str = Field(default="reference-judge", pattern=r"^[\w.:/@+-]{1,100}$")
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] = 0.0
    max_tokens: int = Field(default=1024, ge=1, le=1_000_000, description="Of one reply.")


class Budget(_Part):
    """What a run may spend on judge calls of its own; reaching it pauses the run."""

    judge_calls: int | None = Field(default=None, ge=0, le=2**53)
    tokens: int | None = Field(default=None, ge=0, le=2**53, description="Prompt and completion.")
    usd: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None


class Versions(_Part):
    """Versions of code, declared; without one, the version is the digest of the code's source."""

    agent: Version | None = None
    verifier: Version | None = None
    learner: Version | None = None


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Tasks(_Part):
    """Which tasks a run is of: a task or a folder of tasks, in the Harbor format.

    Asked for by ``path`` (on the driver's host) or ``archive`` (the digest of an uploaded one);
    recorded with the ``manifest`` that says what they were then, and their ``count``.
    """

    path: str | None = Field(default=None, min_length=1, max_length=4096)
    archive: Digest | None = None
    manifest: Digest | None = None
    count: int = Field(default=0, ge=0, le=MAX_TRIALS_PER_STEP)

    @model_validator(mode="after")
    def _from_somewhere(self) -> Tasks:
        if self.path is None and self.archive is None and self.manifest is None:
            raise ValueError("give the path of a folder of tasks, or an uploaded archive")
        return self


def _kind(rubric: Any) -> str:
    """Which of the two a rubric is, so that a mistake in one is no mistake in the other."""
    return "whole" if isinstance(rubric, dict | Rubric) else "name"


class RunSpec(_Part):
    """A whole run: steps of prompts x samples trials, each judged, then one optimizer step."""

    n_steps: int = Field(default=3, ge=1, le=MAX_STEPS)
    n_worlds: int = Field(default=3, ge=1, le=10_000)
    prompts_per_step: int = Field(default=3, ge=1, le=MAX_TRIALS_PER_STEP)
    n_samples: int = Field(default=2, ge=1, le=MAX_TRIALS_PER_STEP)
    max_turns: int = Field(default=6, ge=1, le=8)
    lr: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 2.0
    rubric: Annotated[
        Annotated[str, Tag("name")] | Annotated[Rubric, Tag("whole")], Discriminator(_kind)
    ] = Field(
        default="v1",
        description="NAME (its latest version) or NAME@VERSION of one under /rubrics, or a whole "
        "one. Built in are v1, v2-efficiency and instant.",
    )
    judge: Judge = Judge()
    budget: Budget = Budget()
    seed: int | None = Field(default=None, ge=-(2**53), le=2**53)
    tool_latency_s: Delay = 0.2
    judge_latency_s: Delay = 0.5
    retries: Retries = Retries()
    timeouts: Timeouts = Timeouts()
    group_policy: GroupPolicy = GroupPolicy()
    faults: Faults = Faults()
    tasks: Tasks | None = None
    agent: Agent = Field(
        default="policy",
        description="policy or noop in the reference world; oracle, nop, command or "
        "import:MODULE:CLASS on tasks.",
    )
    agent_options: dict[str, Any] = Field(
        default={}, description="What the agent is told beside its task, such as its command."
    )
    learner: Literal["bandit", "none"] = "bandit"
    versions: Versions = Versions()
    provider: Literal["bubblewrap", "docker", "null"] = "bubblewrap"
    network: Literal["none", "public"] = Field(
        default="none", description="The most network that a task of this run can get."
    )
    images: dict[str, ImageSource] = Field(
        default={},
        max_length=200,
        description="Where the root filesystem of an image comes from, by the name that tasks "
        "build FROM: oci:PATH, tar:PATH, or host (the host's /usr, read-only: trusted).",
    )
    labels: dict[LabelKey, LabelValue] = Field(default={}, max_length=32)

    @model_validator(mode="after")
    def _sound(self, info: ValidationInfo) -> RunSpec:
        if self.trials_per_step > MAX_TRIALS_PER_STEP:
            raise ValueError(
                f"prompts_per_step x n_samples is {self.trials_per_step}; "
                f"the limit is {MAX_TRIALS_PER_STEP} trials a step"
            )
        if isinstance(self.rubric, str) and self.rubric not in BUILT_IN:
            known = ", ".join(sorted(BUILT_IN))
            raise ValueError(f"rubric {self.rubric!r} is unknown; known are {known}")
        if self.group_policy.min_size > self.n_samples:
            raise ValueError("group_policy.min_size is above n_samples: no group could count")
        crash = self.faults.crash_driver_after_step
        if crash is not None and crash >= self.n_steps and info.context is not RECORDED:
            raise ValueError(
                f"faults.crash_driver_after_step is {crash}, which is no step of this run: "
                f"n_steps is {self.n_steps}, the first is 0"
            )
        self._check_faults()
        if info.context is not RECORDED:
            self._check_agent()
        return self

    def _check_agent(self) -> None:
        """Refuse what only one of the two kinds of runs has: tasks, or the reference world."""
        agent = self.agent.partition(":")[0]
        if self.tasks is None:
            if agent not in REFERENCE_AGENTS:
                raise ValueError(f"agent {self.agent} works on tasks: give tasks.path")
            for field in ("agent_options", "images"):
                if getattr(self, field):
                    raise ValueError(f"{field} has no meaning without tasks")
            if self.network != "none" or self.provider == "docker":
                field = "network" if self.network != "none" else "provider"
                raise ValueError(f"{field} {getattr(self, field)} is for tasks: give tasks.path")
            return
        if agent in REFERENCE_AGENTS:
            raise ValueError(
                f"agent {self.agent} knows the reference world only; on tasks: {TASK_AGENTS}"
            )
        if self.learner != "none":
            raise ValueError("learner must be none with tasks: bandit learns the reference world")
        if self.provider == "null":
            raise ValueError("provider null runs no commands, and tasks are made of them")
        if agent == "import" and self.versions.agent is None:
            raise ValueError(
                "versions.agent must be declared with an imported agent, such as its commit: it "
                "tells what a fork may take over"
            )
        try:
            agents.check_options(agent, self.agent_options)
        except ValueError as error:
            raise ValueError(f"agent_options.{error}") from None
        images.check(self.provider, self.images)

    def _check_faults(self) -> None:
        faults = self.faults
        named = [("straggler", trial_id, trial_id) for trial_id in faults.straggler]
        named += [("hang", str(n), trial_id) for n, trial_id in enumerate(faults.hang)]
        named += [
            ("always_fail", str(n), trial_id) for n, trial_id in enumerate(faults.always_fail)
        ]
        for field, key, trial_id in named:
            name = parse_trial_id(trial_id)
            in_run = (
                name.step < self.n_steps
                and name.prompt < self.prompts_per_step
                and name.sample < self.n_samples
            )
            if not in_run:
                # A rule that spans fields begins its message with the one that is wrong.
                raise ValueError(
                    f"faults.{field}.{key} names {trial_id}, which is no trial of this run"
                )

    @property
    def trials_per_step(self) -> int:
        """Prompts x samples."""
        return self.prompts_per_step * self.n_samples

    @property
    def resolved_rubric(self) -> Rubric:
        """The rubric itself, looked up where the spec holds a name."""
        return BUILT_IN[self.rubric] if isinstance(self.rubric, str) else self.rubric

    def recorded(self) -> dict[str, Any]:
        """The spec as it goes on the log: defaults included, the rubric whole."""
        return self.model_dump(mode="json") | {
            "rubric": self.resolved_rubric.model_dump(mode="json")
        }


def load(recorded: dict[str, Any]) -> RunSpec:
    """Return the spec of a RunRequested event's ``spec``. What is refused only since is taken."""
    return RunSpec.model_validate_json(json.dumps(recorded), context=RECORDED)


def names_of(spec: RunSpec, step: int) -> Iterator[TrialName]:
    """Yield the trials of a step, prompts and samples in order. The last batch of tasks may be
    smaller than the others."""
    prompts = spec.prompts_per_step
    if spec.tasks is not None:
        prompts = max(0, min(prompts, spec.tasks.count - step * prompts))
    return (
        TrialName(step, prompt, sample)
        for prompt in range(prompts)
        for sample in range(spec.n_samples)
    )


def place_of(spec: RunSpec, name: TrialName) -> int:
    """Return the number of the world that a trial plays in: step after step another batch of the
    run's tasks, or in each step the reference worlds."""
    if spec.tasks is not None:
        return name.step * spec.prompts_per_step + name.prompt
    return name.prompt % spec.n_worlds


def world_of(spec: RunSpec, name: TrialName) -> str:
    """Return the id of the world that a trial plays in."""
    return f"w{place_of(spec, name)}"


def worlds_of(spec: RunSpec, step: int) -> list[str]:
    """Return the worlds that a step's prompts play in, each once, in order."""
    return list(dict.fromkeys(world_of(spec, name) for name in names_of(spec, step)))
