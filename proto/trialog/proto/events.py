"""The facts on the event log: one frozen struct a type, and the slot each one fills.

``data`` of an event is the JSON text of its struct and stays under 4 KB, mostly under 1 KB: scalars
and references; bytes go to the blob store first. A change of meaning raises ``SCHEMA_VERSION`` of
the type and adds an upcaster; recorded events are never rewritten.
"""

from __future__ import annotations

from typing import Any

import msgspec

from trialog.proto.canonical import written_out


class Provenance(msgspec.Struct, frozen=True):
    """Where a recovered fact was first recorded."""

    run_id: str
    position: int


def source_of(known: Provenance | None, run_id: str, position: int) -> Provenance:
    """Return where a fact that stands at a place was first recorded: there, unless it says."""
    return known or Provenance(run_id, position)


class Bill(msgspec.Struct, frozen=True, omit_defaults=True):
    """What judge calls cost, to the millionth of a dollar."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_microusd: int = 0


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of every event's data.

    A request or a stage that is ``settled`` offers no work: the fact that answers it is recovered
    from another run and recorded in the same breath. What is ``unpinned`` rests on other code than
    its run pinned: its key says which, and no other key of the run stands for it.
    """


class RunRequested(Fact, frozen=True):
    """A run was asked for. ``spec`` is the whole validated RunSpec, defaults included.

    ``code`` pins the version of each piece of code that the run's keys expect, by name
    (``agent:policy``). Of a fork, ``lineage`` names its ancestors, the parent first, each with the
    position up to which it is seen; ``mode`` is recompute or rescore; steps below ``from_step``
    stand as the parent has them. ``asked`` is the digest of the request as it was sent, so that
    the same one sent again is known, whatever it would come to now.
    """

    spec: dict[str, Any]
    root: str
    initial_weights: str
    parent: str | None = None
    lineage: list[Provenance] = []
    code: dict[str, str] = {}
    mode: str = "recompute"
    from_step: int = 0
    asked: str = ""


class WorldRequested(Fact, frozen=True):
    """A world is to be built from a recipe: the reference's by seed, a task's by its blob."""

    world_id: str
    action_key: str
    provider: str = "bubblewrap"
    seed: int | None = None
    settled: bool = False
    task: str = ""


class WorldBuilt(Fact, frozen=True):
    """A world stands ready; ``digest`` is that of its content, a tar archive in the blob store."""

    world_id: str
    action_key: str
    digest: str
    provenance: Provenance | None = None


class TrialRequested(Fact, frozen=True):
    """An agent is to try a prompt. Weights are named by the digest of their blob."""

    trial_id: str
    step: int
    world_id: str
    world_digest: str
    weights_version: int
    weights_digest: str
    action_key: str
    settled: bool = False


class TrialAttemptFailed(Fact, frozen=True):
    """An attempt at a subject's stage failed; ``n`` counts from 0 within its budget.

    ``failure`` is one of infrastructure, agent, task, timeout, injected, lost. Losses (a worker
    that vanished) are counted apart: their slot and budget are their own. ``error`` is the class
    of what went wrong, by Harbor's name where it has one; ``record`` the blob of what was left.
    """

    subject: str
    stage: str
    n: int
    failure: str
    injected: bool = False
    message: str = ""
    worker: str = ""
    error: str = ""
    record: str = ""


class TrialRetryScheduled(Fact, frozen=True):
    """A failed attempt is tried again, not before a recorded time (ms since the epoch)."""

    subject: str
    stage: str
    n: int
    not_before_ms: int
    jitter_ms: int


class TrajectoryRecorded(Fact, frozen=True):
    """An agent's try is over and kept. ``digest`` is of its meaning, ``blob`` of its bytes.

    Of a task: ``state`` is the blob of the sandbox's final state, ``sandbox`` the name under which
    it may still be alive, ``error`` how the try ended when not by itself (it is graded all the
    same), ``services`` how many processes it left running.
    """

    trial_id: str
    step: int
    action_key: str
    digest: str
    blob: str
    n_turns: int
    attempt: int
    worker: str = ""
    provenance: Provenance | None = None
    settled: bool = False
    unpinned: bool = False
    state: str = ""
    sandbox: str = ""
    error: str = ""
    services: int = 0


class TrialVerified(Fact, frozen=True):
    """A trajectory was checked against the pristine world.

    Of a task: ``rewards`` as its verifier gave them, ``reward`` the one that counts, ``mode`` in
    what it was graded (shared, separate, restored), ``error`` how the agent's try ended, ``record``
    the blob of what the verifier left.
    """

    trial_id: str
    step: int
    action_key: str
    verified: bool
    found_doc: int | None
    trajectory: str
    blob: str
    n_turns: int
    provenance: Provenance | None = None
    settled: bool = False
    unpinned: bool = False
    reward: float | None = None
    rewards: dict[str, float] = {}
    mode: str = ""
    error: str = ""
    record: str = ""


class JudgeCallStarted(Fact, frozen=True):
    """A judge call was claimed and is about to be made."""

    trial_id: str
    call_key: str
    fence: int
    criterion: str
    model: str


class JudgeCallRecorded(Fact, frozen=True):
    """A judge's reply, kept the moment it came. Only a valid one closes the call key."""

    trial_id: str
    call_key: str
    ordinal: int
    criterion: str
    model: str
    valid: bool
    score: float | None
    prompt_tokens: int
    completion_tokens: int
    cost_microusd: int
    latency_ms: float
    scores: dict[str, float] = {}
    reply: str = ""
    provenance: Provenance | None = None


class Judged(Fact, frozen=True):
    """A trial's end: its score by criterion and its reward.

    ``bill`` is what the judge calls that it rests on cost, whoever paid; ``memo`` the part of it
    that was not paid for this time, because the replies were on the log.
    """

    trial_id: str
    step: int
    world_id: str
    action_key: str
    digest: str
    score: float
    reward: float
    verified: bool
    found_doc: int | None
    n_turns: int
    scores: dict[str, float] = {}
    bill: Bill = Bill()
    memo: Bill = Bill()
    provenance: Provenance | None = None
    unpinned: bool = False


class TrialSkipped(Fact, frozen=True):
    """A trial's end without a verdict: it is unscored, never a zero."""

    trial_id: str
    step: int
    reason: str
    message: str = ""
    provenance: Provenance | None = None
    error: str = ""
    record: str = ""


class TrialCancelled(Fact, frozen=True):
    """A trial's end because its run was cancelled or failed."""

    trial_id: str
    step: int


class StepRequested(Fact, frozen=True):
    """All trials of a step have ended; ``manifest`` is the blob of its ordered judgments."""

    step: int
    action_key: str
    prior_digest: str
    manifest: str
    n_scored: int
    n_skipped: int
    settled: bool = False
    inputs_key: str = ""
    bill: Bill = Bill()


class StepApplied(Fact, frozen=True):
    """A step's rewards are in the weights, exactly once. ``version`` counts steps passed.

    ``inputs_key`` is that of all that went into the step, trials included; a step with a skipped
    trial has none. ``bill`` is what its judgments rest on. ``whole``: the step is recovered whole,
    its trials are those of the run that ``provenance`` names.
    """

    step: int
    action_key: str
    trained: bool
    prior_digest: str
    digest: str
    version: int
    n_trials: int
    n_skipped: int
    mean_reward: float | None = None
    mean_turns: float | None = None
    actor: str = ""
    pid: int = 0
    provenance: Provenance | None = None
    inputs_key: str = ""
    bill: Bill = Bill()
    whole: bool = False


class RunPaused(Fact, frozen=True):
    """Nothing new is claimed until the run is resumed; in-flight work still records."""

    n: int
    reason: str = ""


class RunResumed(Fact, frozen=True):
    """Unfinished work is offered again. ``budget``: the run's new one, when it was changed."""

    n: int
    budget: dict[str, Any] | None = None


class RunCancelled(Fact, frozen=True):
    """The run ended because somebody asked."""

    reason: str = ""


class RunFailed(Fact, frozen=True):
    """The run ended by a declared policy; the reason names it."""

    reason: str
    step: int | None = None


class RunCompleted(Fact, frozen=True):
    """Every step of the run is applied."""

    weights_version: int
    weights_digest: str


class FaultInjected(Fact, frozen=True):
    """A fault that the run asked for is about to strike."""

    kind: str
    step: int


class DeliveryDeadLettered(Fact, frozen=True):
    """A message could not be handled in any of its deliveries; the work can be offered again."""

    key: str
    kind: str
    n: int
    deliveries: int
    error: str


TYPES: dict[str, type[Fact]] = {cls.__name__: cls for cls in Fact.__subclasses__()}
SCHEMA_VERSION: dict[str, int] = dict.fromkeys(TYPES, 1)
ENDS = frozenset({"Judged", "TrialSkipped", "TrialCancelled"})
RUN_ENDS = frozenset({"RunCancelled", "RunFailed", "RunCompleted"})

_encoder = msgspec.json.Encoder(order="sorted")
_decoders = {name: msgspec.json.Decoder(cls) for name, cls in TYPES.items()}


class UnknownEventError(ValueError):
    """An event type or schema version that this build does not know: it is older than the log."""


def encode(fact: Fact) -> bytes:
    """Return a fact's JSON text with sorted keys, the form that is kept and hashed.

    A NUL is kept as its JSON escape. A lone surrogate, which an error's message can hold and UTF-8
    cannot, is written out as a person reads it: a backslash, u and four hex digits.
    """
    try:
        return _encoder.encode(fact)
    except UnicodeEncodeError:
        return _encoder.encode(written_out(msgspec.to_builtins(fact)))


def decode(type_name: str, schema_version: int, data: str | bytes) -> Fact:
    """Return the fact of an event's JSON text, upcast to today's schema.

    Raises UnknownEventError for a type or version from the future.
    """
    decoder = _decoders.get(type_name)
    if decoder is None or schema_version > SCHEMA_VERSION[type_name]:
        raise UnknownEventError(f"{type_name} version {schema_version}: update this service")
    return decoder.decode(data)
