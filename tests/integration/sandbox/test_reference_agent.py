"""The reference agent in real sandboxes: the golden trajectories, stragglers and hangs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from trialog.proto.ids import parse_trial_id
from trialog.proto.policy import N_DOCS
from trialog.proto.runspec import RunSpec, world_of
from trialog.sandbox.agents.policy import PolicyTrial, run
from trialog.sandbox.bubblewrap.provider import BubblewrapProvider
from trialog.sandbox.errors import TrialTimedOutError
from trialog.sandbox.provider import SandboxSpec
from trialog.sandbox.verifiers.reference import verify
from trialog.sandbox.worlds import reference

GOLDEN = json.loads(Path(__file__).parents[2].joinpath("golden/seed-run.json").read_text())
FLAT = [1.0] * N_DOCS


@pytest.mark.parametrize("name", ["clean", "injected"])
async def test_the_first_step_is_golden(provider: BubblewrapProvider, name: str) -> None:
    run_of = GOLDEN[name]
    rewards = {r["trial_id"]: r for r in run_of["steps"][0]["rewards"]}

    async def one(trial_id: str) -> None:
        golden = run_of["trajectories"][trial_id]
        world = reference.build(world_of(RunSpec(), parse_trial_id(trial_id)))
        await provider.prepare(world.digest(), world.tar_bytes())
        sandbox = await provider.create(trial_id, SandboxSpec(world.digest()))
        trial = PolicyTrial(trial_id, golden["attempt"], FLAT, tool_latency_s=0.01)
        trajectory, snapshot = await run(sandbox, trial)
        await sandbox.destroy()
        assert trajectory.to_json() == {key: golden[key] for key in ("turns", "answer", "files")}
        found = verify(world, snapshot)
        assert found.verified is rewards[trial_id]["verified"]
        assert found.found_doc == rewards[trial_id]["found_doc"]

    await asyncio.gather(*map(one, rewards))


async def test_a_straggler_reaches_the_same_result(
    provider: BubblewrapProvider, spec: SandboxSpec
) -> None:
    sandbox = await provider.create("slow", spec)
    loop = asyncio.get_running_loop()
    began = loop.time()
    trial = PolicyTrial("s0-p0-n0", 0, FLAT, tool_latency_s=0, straggler_s=0.5)
    trajectory, _ = await run(sandbox, trial)
    assert loop.time() - began >= 0.5
    golden = GOLDEN["clean"]["trajectories"]["s0-p0-n0"]
    assert trajectory.to_json()["turns"] == golden["turns"]


async def test_a_hung_trial_is_killed_with_its_tree(
    provider: BubblewrapProvider, spec: SandboxSpec
) -> None:
    sandbox = await provider.create("hung", spec)
    trial = PolicyTrial("s0-p0-n0", 0, FLAT, timeout_s=0.3, hang=True)
    with pytest.raises(TrialTimedOutError):
        await run(sandbox, trial)
    look = await sandbox.exec("look", ["sh", "-c", "cat /proc/[0-9]*/comm"])
    assert b"sleep" not in look.stdout


async def test_a_rewritten_document_is_no_secret_found(
    provider: BubblewrapProvider, spec: SandboxSpec
) -> None:
    """The verifier asks the pristine world, not the fork."""
    sandbox = await provider.create("cheat", spec)
    fake = "0" * 64
    script = f"echo secret_sha256: {fake} | tee docs/*.txt; printf {fake} > answer.txt"
    await sandbox.exec("1", ["sh", "-c", script])
    found = verify(reference.build("w0"), await sandbox.snapshot())
    assert (found.verified, found.found_doc) == (False, None)
