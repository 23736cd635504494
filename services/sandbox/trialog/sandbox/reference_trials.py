"""Trials in the reference world: build it, let an agent try, verify what it left."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import replace
from prometheus_client import Histogram

from trialog.proto import events as ev
from trialog.proto.ids import parse_trial_id
from trialog.proto.keys import agent_code, verifier_code
from trialog.proto.runspec import world_of
from trialog.sandbox import record
from trialog.sandbox.agents import noop, policy
from trialog.sandbox.errors import AgentError, SandboxError, WorldError
from trialog.sandbox.provider import Sandbox, SandboxProvider, SandboxSpec
from trialog.sandbox.snapshot import Snapshot
from trialog.sandbox.verifiers import reference as verifier
from trialog.sandbox.worlds import reference as worlds
from trialog.spine import lineage
from trialog.spine.blobs import BlobStore
from trialog.spine.consumer import AttemptFailedError, Held

_SETUP_S = 60.0
FORK_SECONDS = Histogram(
    "trialog_sandbox_fork_seconds",
    "Fork of a world, mounts, namespaces and the first command.",
    buckets=(
        0.005,
        0.01,
        0.015,
        0.02,
        0.025,
        0.03,
        0.035,
        0.04,
        0.045,
        0.05,
        0.06,
        0.08,
        0.1,
        0.2,
        1,
        5,
    ),
)


class ReferenceTrials:
    """Handlers of a sandbox's two queues for runs in the reference world."""

    def __init__(self, providers: Mapping[str, SandboxProvider], blobs: BlobStore) -> None:
        self._providers = providers
        self._blobs = blobs
        # Forks are work for the processor: more at once than it has cores slow one another down.
        self._turns = asyncio.Semaphore(max(1, (os.cpu_count() or 2) // 2))

    async def on_world_requested(self, held: Held) -> None:
        """Build a world from its recipe and keep its content under its digest."""
        fact = held.origin
        assert isinstance(fact, ev.WorldRequested)
        built = await asyncio.to_thread(_built, fact.world_id, fact.seed)
        content = built.tar_bytes()
        digest, inline = await self._blobs.stage(content)
        key = held.run.keys.world(fact.world_id)
        await held.finish(ev.WorldBuilt(fact.world_id, key, digest), blobs=inline)

    async def on_trial(self, held: Held) -> None:
        """Let the agent try, record its trajectory, and verify it; each stage is a fact."""
        fact = held.origin
        if isinstance(fact, ev.TrialRequested):
            meaning, snapshot = await self._generate(held, fact)
            blob, digest = record.keep(meaning, snapshot)
            name, inline = await self._blobs.stage(blob)
            fact = ev.TrajectoryRecorded(
                fact.trial_id,
                fact.step,
                held.run.keys.generate(fact.trial_id, fact.world_digest, fact.weights_digest),
                digest,
                name,
                len(meaning["turns"]),
                held.injected,
                held.worker,
                unpinned=agent_code(held.run.spec) in held.run.other,
            )
            await held.finish_and_go_on(fact, inline)
        else:
            assert isinstance(fact, ev.TrajectoryRecorded)
            snapshot = record.final_state(await self._blobs.get(fact.blob))
        await held.finish(await _verified(held, fact, snapshot))

    async def _generate(
        self, held: Held, fact: ev.TrialRequested
    ) -> tuple[dict[str, Any], Snapshot]:
        spec = held.run.spec
        provider = self._providers[spec.provider]
        limit_s = spec.timeouts.trial_s
        try:
            async with asyncio.timeout(limit_s + _SETUP_S):
                return await self._try(held, fact, provider, limit_s)
        except (AgentError, SandboxError, WorldError) as error:
            raise AttemptFailedError(error.failure, str(error)) from error
        except TimeoutError as error:
            message = f"the trial and its set-up took more than {limit_s + _SETUP_S:g} s"
            raise AttemptFailedError("timeout", message) from error

    async def _try(
        self, held: Held, fact: ev.TrialRequested, provider: SandboxProvider, limit_s: float
    ) -> tuple[dict[str, Any], Snapshot]:
        if not await provider.prepared(fact.world_digest):
            content = await self._blobs.get(fact.world_digest)
            await provider.prepare(fact.world_digest, content)
        # The fence makes the name new for each claim: a late life of an old one is not met.
        name = f"{held.run.run_id}.{fact.trial_id}.{held.fence}"
        sandbox = await self._fork(provider, name, fact.world_digest)
        try:
            if held.run.spec.agent == "noop":
                return noop.trajectory(fact.trial_id), await sandbox.snapshot()
            trial = await self._policy_trial(held, fact, limit_s)
            trajectory, snapshot = await policy.run(sandbox, trial)
            return trajectory.to_json(), snapshot
        finally:
            await sandbox.destroy()

    async def _fork(self, provider: SandboxProvider, name: str, world_digest: str) -> Sandbox:
        """Return a new sandbox that has run a command: one that cannot is found out here."""
        async with self._turns:
            sandbox = await provider.create(name, SandboxSpec(world_digest))
            try:
                await sandbox.exec("first", ["true"], timeout_s=_SETUP_S)
            except BaseException:  # also on cancellation nothing may stay behind
                await sandbox.destroy()
                raise
            FORK_SECONDS.observe(time.perf_counter() - sandbox.begun_at)
            return sandbox

    async def _policy_trial(
        self, held: Held, fact: ev.TrialRequested, limit_s: float
    ) -> policy.PolicyTrial:
        spec = held.run.spec
        weights = json.loads(await self._blobs.get(fact.weights_digest))
        faults = spec.faults
        return policy.PolicyTrial(
            fact.trial_id,
            held.injected,
            weights["doc_prior"][fact.world_id],
            max_turns=spec.max_turns,
            tool_latency_s=spec.tool_latency_s,
            run_seed=spec.seed,
            timeout_s=limit_s,
            flaky_trial_rate=faults.flaky_trial_rate,
            straggler_s=faults.straggler.get(fact.trial_id, 0.0),
            # A hang is a transient fault: the attempt after it goes its way.
            hang=fact.trial_id in faults.hang and held.failures == held.injected,
            always_fail=fact.trial_id in faults.always_fail,
        )


@lru_cache(maxsize=4096)
def _built(world_id: str, seed: int | None) -> worlds.ReferenceWorld:
    return worlds.build(world_id, seed)


async def _verified(held: Held, fact: ev.TrajectoryRecorded, snapshot: Snapshot) -> ev.Fact:
    """Check the final state against the pristine world, never against the agent's copy; what an
    ancestor has checked so is not checked again."""
    run = held.run
    world_id = world_of(run.spec, parse_trial_id(fact.trial_id))
    key = run.keys.verify(world_id, fact.digest)
    unpinned = fact.unpinned or verifier_code(run.spec) in run.other
    slot = f"verified:{fact.trial_id}"
    kept = await lineage.recovered(held.log, run.request.lineage, slot, key, ev.TrialVerified)
    if kept is not None:
        return replace(kept, blob=fact.blob, settled=False, unpinned=unpinned)
    found = verifier.verify(_built(world_id, run.spec.seed), snapshot)
    return ev.TrialVerified(
        fact.trial_id,
        fact.step,
        key,
        found.verified,
        found.found_doc,
        fact.digest,
        fact.blob,
        fact.n_turns,
        unpinned=unpinned,
    )
