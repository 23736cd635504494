"""What a trainer does with its work: apply each step once and record the weights."""

from __future__ import annotations

import contextlib

import msgspec

from trialog.proto import events as ev
from trialog.spine.blobs import BlobStore
from trialog.spine.consumer import AttemptFailedError, Held
from trialog.spine.log import SlotTakenError
from trialog.trainer.errors import HostTimeoutError, HostUnavailableError, TrainerError
from trialog.trainer.host import PolicyHost
from trialog.trainer.learner import BatchItem, learner_config
from trialog.trainer.policy import Applied, StepOrder


class ManifestRow(msgspec.Struct, frozen=True):
    """One judgment of a step's manifest, in text order of trial ids."""

    trial_id: str
    world_id: str
    found_doc: int | None
    reward: float
    n_turns: int
    digest: str


_manifest = msgspec.json.Decoder(list[ManifestRow])
_FORGET_S = 30.0


class Handlers:
    """The handler of the trainer's queue."""

    def __init__(self, host: PolicyHost, blobs: BlobStore, apply_timeout_s: float) -> None:
        self._host = host
        self._blobs = blobs
        self._apply_timeout_s = apply_timeout_s

    async def on_step_requested(self, held: Held) -> None:
        """Apply a step's rewards to the policy of its run and record the new weights."""
        fact = held.origin
        assert isinstance(fact, ev.StepRequested)
        rows = _manifest.decode(await self._blobs.get(fact.manifest))
        applied = await self._apply(held, fact, rows)
        digest, inline = await self._blobs.stage(applied.weights)
        try:
            await held.finish(_applied(fact, rows, digest, applied), blobs=inline)
        except SlotTakenError:
            # Another host's result stands on the log: what this actor holds is not the policy.
            await self._host.forget(held.run.run_id, timeout_s=_FORGET_S)
            raise
        if fact.step + 1 == held.run.spec.n_steps:
            await self._retire(held.run.run_id)

    async def _retire(self, run_id: str) -> None:
        """End the policy of a run that is over; one that cannot be reached ends by idling."""
        with contextlib.suppress(TrainerError):
            await self._host.retire(run_id, timeout_s=_FORGET_S)

    async def _apply(self, held: Held, fact: ev.StepRequested, rows: list[ManifestRow]) -> Applied:
        order = StepOrder(
            fact.step,
            fact.action_key,
            fact.prior_digest,
            learner_config(held.run.spec),
            tuple(
                BatchItem(row.trial_id, row.world_id, row.found_doc, row.reward, row.digest)
                for row in rows
            ),
        )
        try:
            return await self._host.apply(
                held.run.run_id, order, self._blobs.get, timeout_s=self._apply_timeout_s
            )
        except HostTimeoutError as error:
            raise AttemptFailedError("timeout", str(error)) from error
        except HostUnavailableError as error:
            raise AttemptFailedError("infrastructure", str(error)) from error
        except TrainerError as error:
            raise AttemptFailedError("task", str(error)) from error


def _applied(
    fact: ev.StepRequested, rows: list[ManifestRow], digest: str, applied: Applied
) -> ev.StepApplied:
    """Means are over the rounded rewards in the manifest's order, one added at a time."""
    return ev.StepApplied(
        step=fact.step,
        action_key=fact.action_key,
        trained=True,
        prior_digest=fact.prior_digest,
        digest=digest,
        version=fact.step + 1,
        n_trials=len(rows),
        n_skipped=fact.n_skipped,
        mean_reward=sum(row.reward for row in rows) / len(rows),
        mean_turns=sum(row.n_turns for row in rows) / len(rows),
        actor=applied.actor,
        pid=applied.pid,
    )
