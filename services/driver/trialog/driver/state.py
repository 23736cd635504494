"""A run's state: the fold of its events. Pure; constant work an event; no pydantic.

Only the step in progress keeps its trials; of a step that was applied its number remains, so a
state's size is that of one step however long the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.ids import TrialName
from trialog.proto.keys import Keys
from trialog.proto.runspec import RunSpec, names_of, worlds_of
from trialog.proto.tasks.manifest import Manifest
from trialog.proto.work import (
    BUILD_WORLD,
    GENERATE,
    JUDGE,
    TRAIN_STEP,
    VERIFY,
    WorkName,
    step_subject,
)

CRASH = "crash_driver"
RESCORE = "rescore"
# Recorded for people and for other services; nothing follows from them, so no replay reads them.
UNFOLDED = ("TrajectoryRecorded", "JudgeCallStarted", "JudgeCallRecorded", "DeliveryDeadLettered")


@dataclass(slots=True)
class Trial:
    """A requested trial of the step in progress."""

    trial_id: str
    failures: dict[str, int] = field(default_factory=dict[str, int])
    lost: int = 0
    judged: ev.Judged | None = None
    open: bool = True


@dataclass(slots=True)
class Step:
    """The optimizer step in progress. Times are ms since the epoch, in Postgres time. ``unpinned``:
    a judgment of it rests on other code than the run pinned. ``n_recovered`` trials were judged
    by an ancestor: nobody waited for them. ``unknown`` worlds were not asked for yet."""

    number: int
    unrequested: dict[str, TrialName]
    unknown: dict[str, None] = field(default_factory=dict[str, None])
    trials: dict[str, Trial] = field(default_factory=dict[str, Trial])
    n_open: int = 0
    n_skipped: int = 0
    began_ms: float | None = None
    thinned_ms: float | None = None
    requested: bool = False
    unpinned: bool = False
    n_recovered: int = 0

    @property
    def n_ended(self) -> int:
        """Trials judged, skipped or cancelled so far."""
        return len(self.trials) - self.n_open


@dataclass(slots=True)
class RunState:
    """All that decide needs to know of a run."""

    run_id: str
    partition: int
    spec: RunSpec
    request: ev.RunRequested
    keys: Keys = field(compare=False)  # made of the two above
    weights_digest: str
    weights_version: int = 0
    position: int = 0
    worlds: dict[str, str | None] = field(default_factory=dict[str, str | None])
    step: Step | None = None
    untrained_in_a_row: int = 0
    paused_ms: float | None = None
    n_pauses: int = 0
    end: str | None = None
    crashed: bool = False
    skips: int = 0
    # What still wants an answer, so that deciding costs nothing where nothing happened.
    failed: dict[tuple[str, str], ev.TrialAttemptFailed] = field(
        default_factory=dict[tuple[str, str], ev.TrialAttemptFailed]
    )
    to_close: list[str] = field(default_factory=list[str])

    @property
    def finished(self) -> bool:
        """Whether nothing can follow any more."""
        return self.end is not None and not any(True for _ in self.open_trials())

    @property
    def rescoring(self) -> bool:
        """Whether the run only judges its parent's trajectories: nothing is trained."""
        return self.request.mode == RESCORE

    @property
    def trains(self) -> bool:
        """Whether steps change the weights; without a learner a step is a batch of trials."""
        return self.spec.learner != "none"

    def open_trials(self) -> Iterator[Trial]:
        """Trials that were requested and have not ended."""
        if self.step is not None and self.step.n_open:
            yield from (trial for trial in self.step.trials.values() if trial.open)

    def needs(self, trial_id: str) -> bool:
        """Whether work of this trial is still wanted."""
        trial = self.step.trials.get(trial_id) if self.step else None
        return self.end is None and trial is not None and trial.open


def begin(run_id: str, partition: int, request: ev.RunRequested, tasks: Manifest = ()) -> RunState:
    """Return the state of a run that was only just asked for; ``tasks`` are its manifest's."""
    spec = runspec.load(request.spec)
    keys = Keys(spec, request.code, tasks)
    state = RunState(run_id, partition, spec, request, keys, request.initial_weights)
    state.step = new_step(state, 0)
    return state


def new_step(state: RunState, number: int) -> Step:
    """Return a step with nothing requested yet, prompts and samples in order."""
    if state.rescoring:
        return Step(number, {})  # its trials are those of the lineage
    worlds = worlds_of(state.spec, number)
    unknown = {world: None for world in worlds if world not in state.worlds}
    if number < state.request.from_step:
        return Step(number, {}, unknown)
    names = {str(name): name for name in names_of(state.spec, number)}
    return Step(number, names, unknown)


def evolve(state: RunState, fact: ev.Fact, position: int, at_ms: float) -> None:
    """Fold one event. Facts of trials that ended, and all work after the run's end, are kept on
    the log but change nothing here."""
    state.position = position
    match fact:
        case ev.WorldRequested(world_id=world):
            state.worlds.setdefault(world, None)
            if state.step:
                state.step.unknown.pop(world, None)
        case ev.WorldBuilt(world_id=world):
            state.worlds[world] = fact.digest
        case ev.TrialRequested():
            _trial_requested(state, fact, at_ms)
        case ev.TrialVerified(trial_id=trial_id):
            if not state.needs(trial_id):
                state.to_close.append(WorkName(state.run_id, trial_id, JUDGE).key)
        case ev.TrialAttemptFailed():
            _attempt_failed(state, fact)
        case ev.TrialRetryScheduled():
            state.failed.pop((fact.subject, fact.stage), None)
        case ev.Judged(trial_id=trial_id):
            _trial_ended(state, trial_id, at_ms, fact)
        case ev.TrialSkipped(trial_id=trial_id) | ev.TrialCancelled(trial_id=trial_id):
            _trial_ended(state, trial_id, at_ms, None)
        case ev.StepRequested():
            if state.step:
                state.step.requested = True
        case ev.StepApplied():
            _step_applied(state, fact)
        case ev.FaultInjected(kind=kind):
            state.crashed = state.crashed or kind == CRASH
        case _:
            _run_changed(state, fact, at_ms)


def _run_changed(state: RunState, fact: ev.Fact, at_ms: float) -> None:
    match fact:
        case ev.RunPaused():
            state.paused_ms = at_ms
            state.n_pauses += 1
        case ev.RunResumed():
            _resumed(state, at_ms)
        case ev.RunCancelled() | ev.RunFailed() | ev.RunCompleted():
            state.end = state.end or type(fact).__name__
            state.failed.clear()
            state.to_close.extend(_purposeless(state))
        case _:
            pass  # recorded for people, nothing follows from it


def _purposeless(state: RunState) -> Iterator[str]:
    """Yield the keys of work that a run's end leaves without purpose, its trials' apart."""
    for world, digest in state.worlds.items():
        if digest is None:
            yield WorkName(state.run_id, world, BUILD_WORLD).key
    if state.step is not None:
        yield WorkName(state.run_id, step_subject(state.step.number), TRAIN_STEP).key


def _trial_requested(state: RunState, fact: ev.TrialRequested, at_ms: float) -> None:
    step = state.step
    if step is None or fact.step != step.number or fact.trial_id in step.trials:
        return
    step.trials[fact.trial_id] = Trial(fact.trial_id)
    step.n_open += 1
    step.began_ms = at_ms if step.began_ms is None else step.began_ms
    step.unrequested.pop(fact.trial_id, None)


def _attempt_failed(state: RunState, fact: ev.TrialAttemptFailed) -> None:
    if state.end is not None:
        return
    trial = state.step.trials.get(fact.subject) if state.step else None
    if fact.failure == "lost":
        if trial is not None and trial.open:
            trial.lost += 1
            if trial.lost > state.spec.retries.lost:
                state.failed[fact.subject, fact.stage] = fact
        return
    if trial is None:
        if not _is_trial(fact.subject):
            state.failed[fact.subject, fact.stage] = fact
    elif trial.open:
        trial.failures[fact.stage] = trial.failures.get(fact.stage, 0) + 1
        state.failed[fact.subject, fact.stage] = fact


def _is_trial(subject: str) -> bool:
    return subject.startswith("s") and "-p" in subject


def _trial_ended(state: RunState, trial_id: str, at_ms: float, judged: ev.Judged | None) -> None:
    trial = state.step.trials.get(trial_id) if state.step else None
    if state.step is None or trial is None or not trial.open:
        return
    step = state.step
    trial.open, trial.judged = False, judged
    step.n_open -= 1
    if judged is None:
        step.n_skipped += 1
        state.skips += 1
    else:
        step.unpinned = step.unpinned or judged.unpinned
        step.n_recovered += judged.provenance is not None
    for stage in (GENERATE, VERIFY, JUDGE):
        state.failed.pop((trial_id, stage), None)
    straggler = state.spec.group_policy.straggler
    if straggler is None or step.thinned_ms is not None or step.unrequested:
        return
    tried = len(step.trials) - step.n_recovered
    if tried and step.n_ended - step.n_recovered >= straggler.after_fraction * tried:
        step.thinned_ms = at_ms


def _step_applied(state: RunState, fact: ev.StepApplied) -> None:
    if state.step is None or fact.step != state.step.number:
        return
    state.weights_digest, state.weights_version = fact.digest, fact.version
    # A kept step is no failure of this run, whatever it was of its parent's.
    untrained = not fact.trained and fact.step >= state.request.from_step
    state.untrained_in_a_row = state.untrained_in_a_row + 1 if untrained else 0
    for subject, stage in list(state.failed):
        if stage in (TRAIN_STEP, BUILD_WORLD):  # what could not be built was for this step
            del state.failed[subject, stage]
    last = fact.step + 1 >= state.spec.n_steps
    state.step = None if last else new_step(state, fact.step + 1)


def _resumed(state: RunState, at_ms: float) -> None:
    """Deadlines stand still while a run is paused."""
    if state.paused_ms is None:
        return
    pause_ms, state.paused_ms = at_ms - state.paused_ms, None
    if state.step and state.step.began_ms is not None:
        state.step.began_ms += pause_ms
        if state.step.thinned_ms is not None:
            state.step.thinned_ms += pause_ms
