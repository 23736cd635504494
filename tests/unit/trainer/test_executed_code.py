"""An applied step says which learner applied it, and forks are told."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from msgspec.structs import asdict, replace
from nats.aio.msg import Msg
from support import facts as f
from support.steps import FIRST, golden_batch
from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.canonical import bytes_digest, canonical
from trialog.proto.keys import Keys
from trialog.proto.work import TRAIN_STEP, WorkName, step_subject
from trialog.spine.consumer import Held
from trialog.spine.log import Append, Claim, new_event
from trialog.spine.memory.blobs import MemoryBlobs
from trialog.spine.memory.log import MemoryLog
from trialog.spine.memory.store import MemoryStore
from trialog.spine.runs import Runs
from trialog.trainer import code
from trialog.trainer.handlers import Handlers
from trialog.trainer.host import LoadPrior
from trialog.trainer.memory import MemoryHost
from trialog.trainer.policy import Applied, StepOrder

NAME = "learner:bandit"
OWN = code.versions()[NAME]
BATCH = golden_batch("clean", 0)


class OtherHost(MemoryHost):
    """A cluster whose actors have other code than their host."""

    async def apply(
        self, run_id: str, order: StepOrder, load_prior: LoadPrior, *, timeout_s: float
    ) -> Applied:
        applied = await super().apply(run_id, order, load_prior, timeout_s=timeout_s)
        return replace(applied, code="other")


class Trainer:
    """A trainer over a log in memory, and what it told of."""

    def __init__(self, host: MemoryHost) -> None:
        self.log = MemoryLog(MemoryStore(), 1)
        self.blobs = MemoryBlobs(self.log.store)
        self.told: list[dict[str, str]] = []
        own = {NAME: OWN}
        self.runs = Runs(self.log, own)
        self.handlers = Handlers(host, self.blobs, 10, own, self._tell)

    async def _tell(self, told: Any) -> None:
        self.told.append(dict(told))

    async def apply(self, step: int, **settings: Any) -> tuple[ev.StepRequested, ev.StepApplied]:
        """Apply a step of a run that pinned this trainer's own code."""
        asked = f.run_requested(n_steps=3, n_worlds=3, **settings)
        request = ev.RunRequested(asked.spec, f.RUN, asked.initial_weights, code={NAME: OWN})
        keys = Keys(runspec.load(asked.spec), request.code)
        prior = await self.blobs.put(FIRST)
        manifest = await self.blobs.put(
            canonical([asdict(item) | {"n_turns": 1} for item in BATCH])
        )
        key = keys.step(step, prior, [item.digest for item in BATCH])
        ordered = ev.StepRequested(step, key, prior, manifest, len(BATCH), 0, False, "inputs")
        facts = [new_event(f.RUN, request), new_event(f.RUN, ordered)]
        (await self.log.commit(Append(facts))).check()
        name = WorkName(f.RUN, step_subject(step), TRAIN_STEP)
        claim = (await self.log.commit(Claim(name.key, 30_000))).check()
        run = await self.runs.get(f.RUN)
        message = cast("Msg", None)  # only the consumer looks at it
        held = Held(name, run, ordered, claim.fence, 0, 0, 30_000, self.log, message, "tester")
        await self.handlers.on_step_requested(held)
        event = await self.log.at_slot(f.RUN, f"step-applied:{step}")
        assert event is not None
        applied = event.fact()
        assert isinstance(applied, ev.StepApplied)
        return ordered, applied


async def test_a_step_by_the_code_that_was_pinned_has_the_key_that_was_asked_for() -> None:
    trainer = Trainer(MemoryHost())
    asked, applied = await trainer.apply(0)
    assert (applied.action_key, applied.inputs_key) == (asked.action_key, asked.inputs_key)
    assert trainer.told == []


async def test_a_step_by_other_code_has_the_key_of_that_code_and_it_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trainer = Trainer(OtherHost())
    for step in range(2):
        asked, applied = await trainer.apply(step)
        keys = Keys(runspec.load(f.run_requested(n_steps=3, n_worlds=3).spec), {NAME: "other"})
        digests = [item.digest for item in BATCH]
        assert applied.action_key == keys.step(step, bytes_digest(FIRST), digests)
        assert applied.action_key != asked.action_key
        assert applied.inputs_key == "", "the key of its inputs holds the code that was pinned"
    assert trainer.told == [{NAME: "other"}]
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1 and "other code than was told of" in said[0].getMessage()


async def test_a_declared_version_is_the_version_whoever_applies() -> None:
    asked, applied = await Trainer(OtherHost()).apply(0, versions={"learner": "2"})
    assert applied.action_key == asked.action_key
