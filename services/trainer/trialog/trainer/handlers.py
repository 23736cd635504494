"""What a trainer does with its work: apply each step once and record the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from trialog.proto import events as ev
from trialog.proto.keys import Keys, learner_code
from trialog.spine import telemetry
from trialog.spine.blobs import BlobStore
from trialog.spine.consumer import AttemptFailedError, Held
from trialog.spine.database import DOWN
from trialog.spine.log import SlotTakenError
from trialog.spine.runs import Run
from trialog.trainer.batch import BatchItem
from trialog.trainer.errors import HostTimeoutError, HostUnavailableError, TrainerError
from trialog.trainer.host import PolicyHost
from trialog.trainer.learner import learner_config
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


Tell = Callable[[Mapping[str, str]], Awaitable[None]]


class Handlers:
    """The handler of the trainer's queue.

    ``code`` is what was told of this service's code; ``tell`` tells of what turns out otherwise.
    """

    def __init__(
        self,
        host: PolicyHost,
        blobs: BlobStore,
        apply_timeout_s: float,
        code: Mapping[str, str],
        tell: Tell,
    ) -> None:
        self._host = host
        self._blobs = blobs
        self._apply_timeout_s = apply_timeout_s
        self._told = dict(code)
        self._tell = tell

    async def on_step_requested(self, held: Held) -> None:
        """Apply a step's rewards to the policy of its run and record the new weights."""
        fact = held.origin
        assert isinstance(fact, ev.StepRequested)
        rows = _manifest.decode(await self._blobs.get(fact.manifest))
        applied = await self._apply(held, fact, rows)
        digest, inline = await self._blobs.stage(applied.weights)
        try:
            await held.finish(_applied(held.run, fact, rows, digest, applied), blobs=inline)
        except SlotTakenError:
            # Another host's result stands on the log: what this actor holds is not the policy.
            await self._host.forget(held.run.run_id, timeout_s=_FORGET_S)
            raise
        await self._compare(held.run, applied.code)
        if fact.step + 1 == held.run.spec.n_steps:
            await self._retire(held.run.run_id)

    async def _compare(self, run: Run, version: str) -> None:
        """Tell of the learner that a step was applied with, where it is not the one told of: the
        cluster may have other code than this host, and forks count on what is executed."""
        name = learner_code(run.spec)
        if self._told.get(name) == version:
            return
        telemetry.logger().warning(
            "the policy's actor runs other code than was told of",
            run_id=run.run_id,
            name=name,
            told=self._told.get(name),
            executed=version,
        )
        with contextlib.suppress(*DOWN):
            await self._tell({name: version})
            self._told[name] = version

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
    run: Run, fact: ev.StepRequested, rows: list[ManifestRow], digest: str, applied: Applied
) -> ev.StepApplied:
    """Means are over the rounded rewards in the manifest's order, one added at a time. The key is
    that of the learner that did it, which may be another than the run expected."""
    keys = Keys(run.spec, {learner_code(run.spec): applied.code})
    key = keys.step(fact.step, fact.prior_digest, [row.digest for row in rows])
    return ev.StepApplied(
        step=fact.step,
        action_key=key,
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
        inputs_key=fact.inputs_key if key == fact.action_key else "",
        bill=fact.bill,
    )
