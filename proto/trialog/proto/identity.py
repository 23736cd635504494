"""Action keys: what a piece of work is, by content.

``action_key = sha256(canonical JSON of {kind, code_version, inputs})``. Inputs are what can change
the outcome and nothing else: no host, attempt, timing or sandbox name (docs/invariants.md).
proto/keys.py makes a run's keys from what the run was asked to do.
"""

from __future__ import annotations

from typing import Any

from trialog.proto.canonical import CanonicalText, digest

# A part of the inputs, as it is or written out already: the digest is the same.
Part = dict[str, Any] | CanonicalText

# Of what runs no named code of its own: the form of a world's recipe, of a judge's request.
WORLD_FORM = "reference-1"
IMAGE_FORM = "1"
CALL_FORM = "2"


def action_key(kind: str, code: str, **inputs: Any) -> str:
    """Return the key of a piece of work: the hex digest of its kind, code version and inputs."""
    return digest({"kind": kind, "code_version": code, "inputs": inputs})


def world_key(*, world_id: str, seed: int | None) -> str:
    """Key of building a world from its recipe."""
    return action_key("build_world", WORLD_FORM, world_id=world_id, seed=seed)


def image_key(*, environment: str, images: Part, provider: str, network: str) -> str:
    """Key of building a task's image: its environment's digest, and where bases come from."""
    return action_key(
        "build_world",
        IMAGE_FORM,
        environment=environment,
        images=images,
        provider=provider,
        network=network,
    )


def generate_key(
    *,
    code: str,
    agent: Part,
    world_digest: str,
    weights_digest: str,
    trial_id: str,
    seed: int | None,
    limits: Part,
    fault_rates: Part,
    task: dict[str, str] | None = None,
) -> str:
    """Key of an agent's try: holds the whole policy, not one world's part of it. ``task``: what
    the agent is given of one."""
    return action_key(
        "generate",
        code,
        **({} if task is None else {"task": task}),
        agent=agent,
        world=world_digest,
        weights=weights_digest,
        trial=trial_id,
        seed=seed,
        limits=limits,
        faults=fault_rates,
    )


def verify_key(
    *,
    code: str,
    world_key: str,
    trajectory_digest: str,
    verifier: str,
    task: str | None = None,
) -> str:
    """Key of checking a trajectory, and the final state in it, against the world that it was made
    in: an answer that is right in one is wrong in another. ``task``: digest of a task's tests."""
    return action_key(
        "verify",
        code,
        **({} if task is None else {"task": task}),
        world=world_key,
        trajectory=trajectory_digest,
        verifier=verifier,
    )


def call_key(*, model: Part, request: dict[str, Any], trajectory_digest: str) -> str:
    """Key of one judge call: everything that is sent to the model, the trajectory by its digest."""
    return action_key(
        "judge_call", CALL_FORM, model=model, request=request, trajectory=trajectory_digest
    )


def judge_key(
    *,
    checks: str,
    trial_id: str,
    verification: dict[str, Any],
    rubric_digest: str,
    model: Part,
    seed: int | None,
) -> str:
    """Key of a judgment; ``checks`` is the digest of the versions of its checks' code. The calls
    follow from these inputs, so they are no part of it."""
    return action_key(
        "judge",
        checks,
        trial=trial_id,
        verification=verification,
        rubric=rubric_digest,
        model=model,
        seed=seed,
    )


def step_key(
    *, code: str, step: int, prior_digest: str, judgments: list[str], learner: dict[str, Any]
) -> str:
    """Key of one optimizer step over ordered judgments."""
    return action_key(
        "train_step", code, step=step, prior=prior_digest, judgments=judgments, learner=learner
    )
