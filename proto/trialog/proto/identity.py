"""Action keys: what a piece of work is, by content.

``action_key = sha256(canonical JSON of {kind, code_version, inputs})``. Inputs are what can change
the outcome and nothing else: no host, attempt, timing or sandbox name (docs/invariants.md).
"""

from __future__ import annotations

from typing import Any

from trialog.proto.canonical import digest

CODE_VERSIONS = {
    "build_world": "reference-1",
    "generate": "policy-1",
    "verify": "reference-1",
    "judge_call": "1",
    "judge": "1",
    "train_step": "bandit-1",
}


def action_key(kind: str, **inputs: Any) -> str:
    """Return the key of a piece of work: the hex digest of its kind, code version and inputs."""
    return digest({"kind": kind, "code_version": CODE_VERSIONS[kind], "inputs": inputs})


def world_key(*, world_id: str, seed: int | None) -> str:
    """Key of building a world from its recipe."""
    return action_key("build_world", world_id=world_id, seed=seed)


def generate_key(
    *,
    agent: dict[str, Any],
    world_digest: str,
    weights_digest: str,
    trial_id: str,
    seed: int | None,
    limits: dict[str, Any],
    fault_rates: dict[str, Any],
) -> str:
    """Key of an agent's try: holds the whole policy, not one world's part of it."""
    return action_key(
        "generate",
        agent=agent,
        world=world_digest,
        weights=weights_digest,
        trial=trial_id,
        seed=seed,
        limits=limits,
        faults=fault_rates,
    )


def verify_key(*, trajectory_digest: str, verifier: str) -> str:
    """Key of checking a trajectory and the final state in it."""
    return action_key("verify", trajectory=trajectory_digest, verifier=verifier)


def call_key(*, model: dict[str, Any], request: dict[str, Any]) -> str:
    """Key of one judge call: everything that is sent to the model."""
    return action_key("judge_call", model=model, request=request)


def judge_key(*, verification: str, rubric_digest: str, calls: list[str]) -> str:
    """Key of turning call results into a reward."""
    return action_key("judge", verification=verification, rubric=rubric_digest, calls=calls)


def step_key(*, step: int, prior_digest: str, judgments: list[str], learner: dict[str, Any]) -> str:
    """Key of one optimizer step over ordered judgments."""
    return action_key(
        "train_step", step=step, prior=prior_digest, judgments=judgments, learner=learner
    )
