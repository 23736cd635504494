"""Work that an event offers, and the key under which it is claimed."""

from __future__ import annotations

import msgspec

from trialog.proto import events as ev

BUILD_WORLD, GENERATE, VERIFY, JUDGE, TRAIN_STEP = (
    "build_world",
    "generate",
    "verify",
    "judge",
    "train_step",
)
# Kind of queue by stage: one consumer a kind. Verifying stays with the sandbox that generated.
KIND_OF_STAGE = {
    BUILD_WORLD: "world",
    GENERATE: "trial",
    VERIFY: "trial",
    JUDGE: "judge",
    TRAIN_STEP: "step",
}
KINDS = ("world", "trial", "judge", "step")
CALL = "call"


class WorkMessage(msgspec.Struct, frozen=True):
    """What the bus carries: the event that offers the work, by value (it is under 2 KB)."""

    key: str
    kind: str
    run_id: str
    partition: int
    position: int
    type: str
    schema_version: int
    data: str
    not_before_ms: int = 0


class WorkName(msgspec.Struct, frozen=True):
    """The parts of a work key: run, subject (trial id, world id or ``step-N``), stage."""

    run_id: str
    subject: str
    stage: str

    @property
    def key(self) -> str:
        """The text under which the work is claimed."""
        return f"{self.run_id}/{self.subject}/{self.stage}"

    @property
    def kind(self) -> str:
        """The queue that hands it out."""
        return KIND_OF_STAGE[self.stage]


def parse_key(key: str) -> WorkName:
    """Return the parts of a work key. Raises ValueError for a text that is none."""
    run_id, subject, stage = key.split("/")
    return WorkName(run_id, subject, stage)


def call_work_key(root: str, call_key: str) -> str:
    """Return the key under which a judge call is claimed: once in a tree of runs."""
    return f"{CALL}/{root}/{call_key}"


def step_subject(step: int) -> str:
    """Return the subject of a step's work."""
    return f"step-{step}"


def work_of(run_id: str, fact: ev.Fact) -> WorkName | None:
    """Return the work that a fact offers, if any: what is settled offers none."""
    if getattr(fact, "settled", False):
        return None
    match fact:
        case ev.WorldRequested(world_id=world):
            return WorkName(run_id, world, BUILD_WORLD)
        case ev.TrialRequested(trial_id=trial):
            return WorkName(run_id, trial, GENERATE)
        case ev.TrajectoryRecorded(trial_id=trial):
            return WorkName(run_id, trial, VERIFY)
        case ev.TrialVerified(trial_id=trial):
            return WorkName(run_id, trial, JUDGE)
        case ev.StepRequested(step=step):
            return WorkName(run_id, step_subject(step), TRAIN_STEP)
        case ev.TrialRetryScheduled(subject=subject, stage=stage):
            return WorkName(run_id, subject, stage)
        case _:
            return None


def origin_slot(name: WorkName) -> str:
    """Return the slot of the event that first offered this work: it holds the inputs."""
    match name.stage:
        case "build_world":
            return f"world-requested:{name.subject}"
        case "generate":
            return f"trial:{name.subject}"
        case "verify":
            return f"trajectory:{name.subject}"
        case "judge":
            return f"verified:{name.subject}"
        case _:
            return f"step-requested:{name.subject.removeprefix('step-')}"


def keys_of_trial(run_id: str, trial_id: str) -> tuple[str, ...]:
    """Return the keys of all work that a trial can have."""
    return tuple(WorkName(run_id, trial_id, stage).key for stage in (GENERATE, VERIFY, JUDGE))
