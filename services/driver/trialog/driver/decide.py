"""What comes next, from a run's state alone. Pure: time and jitter are arguments.

Every answer is a fact with a slot of its own, so deciding the same thing twice, by one driver after
a crash or by two at once, records it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from trialog.driver.closing import closed
from trialog.driver.lineage import NOTHING, Lineage
from trialog.driver.state import CRASH, RunState, Step, Trial
from trialog.proto import events as ev
from trialog.proto.ids import parse_trial_id
from trialog.proto.runspec import world_of
from trialog.proto.work import BUILD_WORLD, WorkName, keys_of_trial

_FIRST_RETRY_MS = 100
_LONGEST_RETRY_MS = 30_000
_INFRASTRUCTURE_RETRIES = 5

# Failures that no retry mends, and what a trial is then skipped for.
_FINAL = {"lost": "workers_lost", "task": "task_failed"}
# What is lost with a host does not come back, however often it is looked for.
_HOPELESS = {"ServicesLostError": "services_lost"}

Jitter = Callable[[], float]


@dataclass(slots=True)
class Decision:
    """Facts to record at once, bytes to keep before them, work that nobody needs any more, and
    when to look again though nothing happens (ms since the epoch)."""

    facts: list[ev.Fact] = field(default_factory=list[ev.Fact])
    blobs: list[bytes] = field(default_factory=list[bytes])
    closes: list[str] = field(default_factory=list[str])
    wake_ms: float | None = None


def chunks(facts: Sequence[ev.Fact], most: int) -> Iterator[Sequence[ev.Fact]]:
    """Cut a decision into appends of about so many facts. What is about one world, trial or step
    stays together: a settled request without the fact that answers it would be nobody's work."""
    start, last = 0, None
    for index, fact in enumerate(facts):
        subject = getattr(fact, "trial_id", None) or getattr(fact, "world_id", None)
        if index - start >= most and subject != last:
            yield facts[start:index]
            start = index
        last = subject
    yield facts[start:]


def decide(state: RunState, now_ms: float, jitter: Jitter, lineage: Lineage = NOTHING) -> Decision:
    """Return what follows from a state. ``jitter`` draws from [0, 1).

    ``lineage`` is what the run's ancestors have of the step in progress: what is found there is
    recovered, and only the rest is asked for.
    """
    decision = Decision(closes=list(state.to_close))
    if state.end is not None:
        for trial in state.open_trials():
            end = ev.TrialCancelled(trial.trial_id, _number(state))
            _end_trial(state, trial, decision, end)
        return decision
    crash = state.spec.faults.crash_driver_after_step
    if crash is not None and not state.crashed and state.weights_version == crash + 1:
        decision.facts.append(ev.FaultInjected(CRASH, crash))
        return decision
    if state.paused_ms is not None:
        return decision
    _answer_failures(state, decision, now_ms, jitter)
    if _has_failed(decision):
        return decision
    if state.step is None:
        if not _gave_up(state, decision):
            fact = ev.RunCompleted(state.weights_version, state.weights_digest)
            decision.facts.append(fact)
        return decision
    if _gave_up(state, decision):
        return decision
    if state.request.lineage and lineage.step != state.step.number:
        raise ValueError(f"{state.run_id} is at step {state.step.number}, not {lineage.step}")
    _request_worlds(state, state.step, lineage, decision)
    if _recover_whole(state, state.step, lineage, decision):
        return decision
    if state.step.number < state.request.from_step:
        raise ValueError(f"{state.run_id}: its parent has no step {state.step.number}")
    if state.rescoring:
        _take_over(state, state.step, lineage, decision)
    else:
        _request_trials(state, state.step, lineage, decision)
    _watch_deadlines(state, state.step, decision, now_ms)
    _close_step(state, state.step, lineage, decision)
    return decision


def _has_failed(decision: Decision) -> bool:
    return any(isinstance(fact, ev.RunFailed) for fact in decision.facts)


def _gave_up(state: RunState, decision: Decision) -> bool:
    """End the run when too many steps in a row had nothing to train on."""
    limit = state.spec.group_policy.max_untrained_steps
    if state.rescoring or not state.trains or state.untrained_in_a_row < limit:
        return False
    reason = f"no scored trial in {limit} step(s) in a row (group_policy.max_untrained_steps)"
    decision.facts.append(ev.RunFailed(reason, state.weights_version - 1))
    return True


def _request_worlds(state: RunState, step: Step, lineage: Lineage, decision: Decision) -> None:
    spec = state.spec
    for world in step.unknown:
        key = state.keys.world(world)
        built = lineage.recover(ev.WorldBuilt, world, key)
        settled = built is not None
        task = "" if spec.tasks is None else state.keys.task(world).blob
        request = ev.WorldRequested(world, key, spec.provider, spec.seed, settled, task)
        decision.facts.append(request)
        if built is not None:
            decision.facts.append(built)


def _recover_whole(state: RunState, step: Step, lineage: Lineage, decision: Decision) -> bool:
    """Recover steps whole, one after the other, as long as an ancestor has them."""
    if step.trials or state.rescoring:
        return False
    weights, number = state.weights_digest, step.number
    crash = None if state.crashed else state.spec.faults.crash_driver_after_step
    while number < state.spec.n_steps and (crash is None or number <= crash):
        applied = lineage.whole_from(state, number, weights)
        if applied is None:
            break
        decision.facts.append(applied)
        weights, number = applied.digest, number + 1
    return number > step.number


def _request_trials(state: RunState, step: Step, lineage: Lineage, decision: Decision) -> None:
    """Request every trial whose world stands; the others follow as their worlds get built."""
    spec = state.spec
    for trial_id, name in step.unrequested.items():
        world = world_of(spec, name)
        digest = state.worlds.get(world)
        if digest is None:
            continue
        key = state.keys.generate(trial_id, digest, state.weights_digest)
        tried = lineage.recover(ev.TrajectoryRecorded, trial_id, key)
        decision.facts.append(_request(state, trial_id, world, digest, settled=tried is not None))
        if tried is not None:
            decision.facts.extend(_recovered(state, lineage, tried))


def _request(
    state: RunState, trial_id: str, world: str, digest: str, *, settled: bool
) -> ev.TrialRequested:
    return ev.TrialRequested(
        trial_id,
        _number(state),
        world,
        digest,
        state.weights_version,
        state.weights_digest,
        state.keys.generate(trial_id, digest, state.weights_digest),
        settled,
    )


def _recovered(
    state: RunState, lineage: Lineage, tried: ev.TrajectoryRecorded
) -> Iterator[ev.Fact]:
    """Yield a recovered trajectory and what follows from it as far as that was recorded too; the
    last of them offers the work that is left."""
    trial_id = tried.trial_id
    world = world_of(state.spec, parse_trial_id(trial_id))
    key = state.keys.verify(world, tried.digest)
    verified = lineage.recover(ev.TrialVerified, trial_id, key)
    yield replace(tried, settled=verified is not None)
    if verified is not None:
        yield from _judged_before(state, lineage, verified)


def _judged_before(
    state: RunState, lineage: Lineage, verified: ev.TrialVerified
) -> Iterator[ev.Fact]:
    judged = lineage.recover(ev.Judged, verified.trial_id, state.keys.judge(verified))
    yield replace(verified, settled=judged is not None)
    if judged is not None:
        yield judged


def _take_over(state: RunState, step: Step, lineage: Lineage, decision: Decision) -> None:
    """Record the parent's trajectories for judging them anew. What a trial has is recorded at
    once, so one that was requested is done with here. What the parent had not verified yet may be
    verified by an ancestor of it."""
    for fact in lineage.taken:
        if getattr(fact, "trial_id", None) in step.trials:
            continue
        match fact:
            case ev.TrialVerified():
                decision.facts.extend(_judged_before(state, lineage, fact))
            case ev.TrajectoryRecorded(settled=False):
                decision.facts.extend(_recovered(state, lineage, fact))
            case _:
                decision.facts.append(fact)


def _untaken(step: Step, lineage: Lineage) -> bool:
    """Whether a trial that the lineage has is not on this run's log yet."""
    return any(
        isinstance(fact, ev.TrialRequested) and fact.trial_id not in step.trials
        for fact in lineage.taken
    )


def _answer_failures(state: RunState, decision: Decision, now_ms: float, jitter: Jitter) -> None:
    for (subject, stage), failure in state.failed.items():
        trial = state.step.trials.get(subject) if state.step else None
        final = _FINAL.get(failure.failure) or _HOPELESS.get(failure.error)
        if final is None and failure.n < _budget(state, stage):
            pause_ms = min(_FIRST_RETRY_MS * 2**failure.n, _LONGEST_RETRY_MS)
            drawn_ms = int(pause_ms * jitter())
            at_ms = int(now_ms) + pause_ms // 2 + drawn_ms
            retry = ev.TrialRetryScheduled(subject, stage, failure.n, at_ms, drawn_ms)
            decision.facts.append(retry)
        elif trial is not None:
            skip = final or "retries_exhausted"
            _skip(state, trial, decision, skip, _said(stage, failure), failure)
        elif stage == BUILD_WORLD and state.spec.tasks is not None:
            _skip_trials_of(state, subject, failure, decision)
        else:
            often = "once" if failure.n == 0 else f"{failure.n + 1} times"
            reason = f"{stage} of {subject} failed {often}: {failure.message}"
            decision.facts.append(ev.RunFailed(reason))
            return


def _said(doing: str, failure: ev.TrialAttemptFailed) -> str:
    """Return what went wrong in words; the fact has its class beside them."""
    return f"{doing}: {failure.message or failure.failure}"


def _skip_trials_of(
    state: RunState, world: str, failure: ev.TrialAttemptFailed, decision: Decision
) -> None:
    """Skip the trials of a task whose image cannot be built: of other tasks that says nothing."""
    assert state.step is not None
    message = _said(f"{BUILD_WORLD} of {state.keys.task(world).name} ({world})", failure)
    for trial_id, name in state.step.unrequested.items():
        if world_of(state.spec, name) != world or _has_failed(decision):
            continue
        decision.facts.append(_request(state, trial_id, world, "", settled=True))
        _skip(state, Trial(trial_id), decision, "task_failed", message, failure)
    decision.closes.append(WorkName(state.run_id, world, BUILD_WORLD).key)


def _budget(state: RunState, stage: str) -> int:
    match stage:
        case "generate":
            return state.spec.retries.trial
        case "judge":
            return state.spec.retries.judge
        case _:
            return _INFRASTRUCTURE_RETRIES


def _skip(
    state: RunState,
    trial: Trial,
    decision: Decision,
    reason: str,
    message: str,
    failure: ev.TrialAttemptFailed | None = None,
) -> None:
    """Skip a trial for a reason; for a failure the skip says which and what it left behind."""
    fact = ev.TrialSkipped(trial.trial_id, _number(state), reason, message)
    if failure is not None:
        fact = replace(fact, error=failure.error, record=failure.record)
    _end_trial(state, trial, decision, fact)
    if state.spec.group_policy.mode == "fail_fast" and not _has_failed(decision):
        text = f"trial {trial.trial_id} was skipped ({reason}) and group_policy.mode is fail_fast"
        decision.facts.append(ev.RunFailed(f"{text}: {message}", _number(state)))


def _number(state: RunState) -> int:
    assert state.step is not None
    return state.step.number


def _end_trial(state: RunState, trial: Trial, decision: Decision, end: ev.Fact) -> None:
    decision.facts.append(end)
    decision.closes.extend(keys_of_trial(state.run_id, trial.trial_id))


def _watch_deadlines(state: RunState, step: Step, decision: Decision, now_ms: float) -> None:
    """Skip what is open past the step's deadline or the stragglers' grace, else say when."""
    if step.began_ms is None or not step.n_open:
        return
    due = [(step.began_ms + state.spec.timeouts.step_s * 1000, "step_deadline")]
    straggler = state.spec.group_policy.straggler
    if straggler and step.thinned_ms is not None:
        due.append((step.thinned_ms + straggler.grace_s * 1000, "straggler"))
    at_ms, reason = min(due)
    if now_ms < at_ms:
        decision.wake_ms = at_ms
        return
    handled = {fact.trial_id for fact in decision.facts if isinstance(fact, ev.TrialSkipped)}
    for trial in step.trials.values():
        if trial.open and trial.trial_id not in handled:
            _skip(state, trial, decision, reason, f"open when the {reason} passed")


def _close_step(state: RunState, step: Step, lineage: Lineage, decision: Decision) -> None:
    """All trials ended: what comes of the step."""
    if step.requested or step.n_open or step.unrequested:
        return
    if state.rescoring and _untaken(step, lineage):
        return
    facts, manifest = closed(state, step, lineage)
    decision.facts.extend(facts)
    decision.blobs.extend(manifest)
