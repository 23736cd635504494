"""What holds for every world, seed and policy of the reference agent."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from trialog.proto.policy import N_DOCS
from trialog.sandbox.agents.policy import PolicyTrial, Trajectory, run
from trialog.sandbox.memory import MemoryProvider
from trialog.sandbox.provider import SandboxSpec
from trialog.sandbox.verifiers.reference import verify
from trialog.sandbox.worlds import reference
from trialog.sandbox.worlds.archive import entries, pack

SEEDS = st.none() | st.integers(-(2**53), 2**53)
PRIORS = st.lists(st.floats(1.0, 1e6), min_size=N_DOCS, max_size=N_DOCS)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=30)
PATHS = st.lists(NAMES.filter(lambda n: n not in (".", "..")), min_size=1, max_size=4).map("/".join)


async def one(trial: PolicyTrial, world: reference.ReferenceWorld) -> Trajectory:
    provider = MemoryProvider()
    await provider.prepare(world.digest(), world.tar_bytes())
    sandbox = await provider.create("t", SandboxSpec(world.digest()))
    trajectory, snapshot = await run(sandbox, trial)
    found = verify(world, snapshot)
    assert found.verified == (trajectory.answer == world.secret_sha256)
    assert found.found_doc == (world.secret_doc if found.verified else None)
    return trajectory


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 50), st.integers(0, 10**6), SEEDS, PRIORS, st.integers(1, 8))
def test_a_trajectory_is_a_search_without_repeats(
    world_n: int, trial_n: int, run_seed: int | None, prior: list[float], max_turns: int
) -> None:
    world = reference.build(f"w{world_n}", run_seed)
    trial = PolicyTrial(
        f"s0-p{trial_n}-n0", 0, prior, max_turns=max_turns, tool_latency_s=0, run_seed=run_seed
    )
    trajectory = asyncio.run(one(trial, world))
    docs = [turn.doc for turn in trajectory.turns]
    assert len(set(docs)) == len(docs) <= max_turns
    assert [turn.found for turn in trajectory.turns[:-1]] == [False] * (len(docs) - 1)
    assert trajectory.turns[-1].found == (docs[-1] == world.secret_doc)
    assert trajectory.answer == (world.secret_sha256 if trajectory.turns[-1].found else None)
    assert trajectory.files in (("answer.txt",), ("answer.txt", "scratch.tmp"))
    if not trajectory.turns[-1].found:
        assert len(docs) == max_turns
    assert asyncio.run(one(trial, world)) == trajectory


@settings(deadline=None)
@given(st.dictionaries(PATHS, st.binary(max_size=2000), max_size=8))
def test_an_archive_gives_back_what_was_packed(files: dict[str, bytes]) -> None:
    packed = pack(files)
    assert {entry.path: entry.data for entry in entries(packed)} == files
    assert pack(dict(reversed(files.items()))) == packed
