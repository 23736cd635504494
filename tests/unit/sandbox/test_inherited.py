"""A verification that an ancestor has of the same is not made again: only a sandbox can tell, of a
trajectory that was made anew and came out as it was."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest
from msgspec.structs import replace
from nats.aio.msg import Msg
from support import facts as f
from trialog.proto import events as ev
from trialog.proto.ids import run_id_from
from trialog.proto.work import VERIFY, WorkName
from trialog.sandbox import record
from trialog.sandbox.reference_trials import ReferenceTrials
from trialog.sandbox.snapshot import Snapshot
from trialog.spine.consumer import Held
from trialog.spine.log import Append, Claim, new_event
from trialog.spine.memory.blobs import MemoryBlobs
from trialog.spine.memory.log import MemoryLog
from trialog.spine.runs import Runs

TRIAL = "s0-p0-n0"
VERSIONS = {"verifier:reference": "1"}


class Sandbox:
    """A sandbox that verifies over a log in memory."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.blobs = MemoryBlobs(self.log.store)
        self.runs = Runs(self.log, VERSIONS)
        self._handlers = ReferenceTrials({}, self.blobs)

    async def append(self, run_id: str, fact: ev.Fact) -> None:
        (await self.log.commit(Append([new_event(run_id, fact)]))).check()

    async def run(self, parent: str | None = None, **settings: Any) -> str:
        """Ask for a run, or for a fork of one as it is now."""
        run_id = run_id_from(os.urandom(8))
        seen = [ev.Provenance(parent, await self.log.end(0))] if parent else []
        request = replace(f.run_requested(run_id, **settings), lineage=seen, code=VERSIONS)
        await self.append(run_id, request)
        return run_id

    async def verified(self, run_id: str, answer: str | None = None) -> ev.TrialVerified:
        """Record a trajectory, verify it, and return that."""
        meaning = {"turns": [], "answer": answer, "files": []}
        blob, digest = record.keep(meaning, Snapshot(()))
        tried = replace(f.trajectory(TRIAL, blob=await self.blobs.put(blob)), digest=digest)
        await self.append(run_id, tried)
        name = WorkName(run_id, TRIAL, VERIFY)
        claim = (await self.log.commit(Claim(name.key, 30_000))).check()
        run, message = await self.runs.get(run_id), cast("Msg", None)
        held = Held(name, run, tried, claim.fence, 0, 0, 30_000, self.log, message, "tester")
        await self._handlers.on_trial(held)
        event = await self.log.at_slot(run_id, f"verified:{TRIAL}")
        assert event is not None
        fact = event.fact()
        assert isinstance(fact, ev.TrialVerified)
        return fact


@pytest.fixture
def sandbox() -> Sandbox:
    return Sandbox()


async def test_a_fork_takes_its_ancestors_verification(sandbox: Sandbox) -> None:
    parent = await sandbox.run()
    theirs = await sandbox.verified(parent)
    ours = await sandbox.verified(await sandbox.run(parent))
    event = await sandbox.log.at_slot(parent, f"verified:{TRIAL}")
    assert event is not None
    assert ours == replace(theirs, provenance=ev.Provenance(parent, event.position))
    assert not ours.settled, "its judgment is offered"


@pytest.mark.parametrize("change", [{"seed": 7}, {"versions": {"verifier": "2"}}])
async def test_another_world_or_verifier_is_verified_anew(
    sandbox: Sandbox, change: dict[str, Any]
) -> None:
    parent = await sandbox.run()
    await sandbox.verified(parent)
    assert (await sandbox.verified(await sandbox.run(parent, **change))).provenance is None


async def test_another_trajectory_is_verified_anew(sandbox: Sandbox) -> None:
    parent = await sandbox.run()
    await sandbox.verified(parent)
    ours = await sandbox.verified(await sandbox.run(parent), answer="42")
    assert ours.provenance is None


async def test_what_came_after_the_fork_is_not_seen(sandbox: Sandbox) -> None:
    parent = await sandbox.run()
    fork = await sandbox.run(parent)
    await sandbox.verified(parent)
    assert (await sandbox.verified(fork)).provenance is None
