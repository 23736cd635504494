"""The reference agent, world and verifier give the golden numbers to the letter."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from trialog.proto.policy import N_DOCS
from trialog.proto.seeds import generator
from trialog.sandbox.agents import policy
from trialog.sandbox.errors import InjectedFault
from trialog.sandbox.memory import MemoryProvider
from trialog.sandbox.provider import SandboxSpec
from trialog.sandbox.verifiers import reference as verifier
from trialog.sandbox.worlds import reference as worlds

GOLDEN = json.loads(Path(__file__).parents[2].joinpath("golden/seed-run.json").read_text())
LR = 2.0
TRIAL_IDS = [f"s{s}-p{p}-n{n}" for s in range(3) for p in range(3) for n in range(2)]


def golden_weights(run: dict[str, Any], step: int) -> dict[str, list[float]]:
    """The weights a step's trials see, derived by the training rule from the rounded rewards."""
    weights = {f"w{w}": [1.0] * N_DOCS for w in range(3)}
    for earlier in run["steps"][:step]:
        for reward in earlier["rewards"]:
            if reward["found_doc"] is not None and reward["reward"] > 0:
                weights[reward["world_id"]][reward["found_doc"]] += LR * reward["reward"]
    return weights


def judged(trial_id: str, verified: bool, n_turns: int, files: tuple[str, ...]) -> float:
    """The score of rubric v1, here only to close the loop from trajectory to reward."""
    draw: random.Random = generator("judge", trial_id, "v1")
    efficiency = max(0.0, 1 - (n_turns - 1) / 8)
    tidy = 1.0 if files == ("answer.txt",) else 0.0
    score = 1.0 * verified + 0.3 * efficiency + 0.1 * tidy + draw.uniform(-0.05, 0.05)
    return round(score, 3)


@pytest.mark.parametrize(("name", "rate"), [("clean", 0.0), ("injected", 0.25)])
async def test_every_golden_trajectory(name: str, rate: float) -> None:
    run = GOLDEN[name]
    rewards = {r["trial_id"]: r for step in run["steps"] for r in step["rewards"]}
    provider = MemoryProvider()
    retried: list[str] = []
    for trial_id in TRIAL_IDS:
        step, prompt = int(trial_id[1]), int(trial_id[4])
        world = worlds.build(f"w{prompt % 3}")
        await provider.prepare(world.digest(), world.tar_bytes())
        prior = golden_weights(run, step)[world.world_id]
        attempt = 0
        while True:
            trial = policy.PolicyTrial(
                trial_id, attempt, prior, tool_latency_s=0, flaky_trial_rate=rate
            )
            sandbox = await provider.create(f"{trial_id}.{attempt}", SandboxSpec(world.digest()))
            try:
                trajectory, snapshot = await policy.run(sandbox, trial)
                break
            except InjectedFault:
                retried.append(trial_id)
                attempt += 1
        golden = run["trajectories"][trial_id]
        expected = {key: golden[key] for key in ("turns", "answer", "files")}
        assert trajectory.to_json() == expected
        assert attempt == golden["attempt"]
        assert world.world_id == golden["world_id"]
        found = verifier.verify(world, snapshot)
        reward = rewards[trial_id]
        assert (found.verified, found.found_doc) == (reward["verified"], reward["found_doc"])
        score = judged(trial_id, found.verified, len(trajectory.turns), trajectory.files)
        assert score == reward["judge_score"]
    assert retried == run["generate_retried"]
    final = golden_weights(run, 3)
    assert {w: [round(x, 3) for x in row] for w, row in final.items()} == run["steps"][2]["prior"]


async def test_a_run_seed_changes_worlds_and_draws() -> None:
    plain, seeded = worlds.build("w0"), worlds.build("w0", 7)
    assert plain.secret_sha256 != seeded.secret_sha256
    assert worlds.build("w0", 7) == seeded
    assert plain.digest() == worlds.build("w0").digest()


async def test_an_agent_told_to_fail_fails_every_attempt() -> None:
    world = worlds.build("w0")
    provider = MemoryProvider()
    await provider.prepare(world.digest(), world.tar_bytes())
    for attempt in range(3):
        sandbox = await provider.create(f"t.{attempt}", SandboxSpec(world.digest()))
        trial = policy.PolicyTrial("s0-p0-n0", attempt, [1.0] * N_DOCS, always_fail=True)
        with pytest.raises(InjectedFault):
            await policy.run(sandbox, trial)
