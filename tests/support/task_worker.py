"""A worker with tasks to do, over a log in memory and any provider of sandboxes."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace
from nats.aio.msg import Msg
from support import facts as f
from trialog.proto import events as ev
from trialog.proto.canonical import bytes_digest
from trialog.proto.ids import run_id_from
from trialog.proto.policy import first_weights
from trialog.proto.runspec import load
from trialog.proto.tasks import manifest
from trialog.proto.tasks.files import Entry
from trialog.proto.tasks.parts import ref_of
from trialog.proto.tasks.task import read_task
from trialog.proto.work import BUILD_WORLD, GENERATE, VERIFY, WorkName
from trialog.sandbox import record
from trialog.sandbox.images import ImageProvider
from trialog.sandbox.record import KeptTrajectory
from trialog.sandbox.trials.handling import TaskTrials
from trialog.sandbox.trials.host import Host
from trialog.sandbox.trials.scratch import Scratch
from trialog.spine.consumer import AttemptFailedError, Held
from trialog.spine.log import MAX_INLINE_BLOB_BYTES, Append, Claim, Fail, new_event
from trialog.spine.memory.blobs import MemoryBlobs
from trialog.spine.memory.log import MemoryLog
from trialog.spine.memory.store import MemoryStore
from trialog.spine.runs import Runs
from trialog.spine.tasks.packing import pack
from trialog.spine.tasks.store import TaskStore

TRIAL = "s0-p0-n0"
IMAGE = "base"
ENVIRONMENT = f'[environment]\ndocker_image = "{IMAGE}"\nworkdir = "/app"\n'
ANSWER = "cat /app/answer.txt > /logs/verifier/reward.txt"
Texts = Mapping[str, str]


def a_task(
    solve: str = "echo 1 > answer.txt",
    test: str = ANSWER,
    *,
    toml: str = "",
    environment: str = "",
    **files: str,
) -> dict[str, str]:
    """Return the files of a small task. ``toml`` comes before its [environment], ``environment``
    after it; more files, or others, by path with ``__`` for ``/`` and ``_dot_`` for a dot."""
    return {
        "task.toml": f'schema_version = "1.4"\n{toml}\n{ENVIRONMENT}{environment}\n',
        "instruction.md": "Write 1 into answer.txt.\n",
        "solution/solve.sh": f"#!/bin/sh\n{solve}\n",
        "tests/test.sh": f"#!/bin/sh\n{test}\n",
    } | _named(files)


def a_step(name: str, solve: str, test: str = ANSWER) -> dict[str, str]:
    """Return the files of a step of a task."""
    return {
        f"steps/{name}/instruction.md": f"Do {name}.\n",
        f"steps/{name}/solution/solve.sh": f"#!/bin/sh\n{solve}\n",
        f"steps/{name}/tests/test.sh": f"#!/bin/sh\n{test}\n",
    }


def _named(files: Mapping[str, str]) -> dict[str, str]:
    return {path.replace("_dot_", ".").replace("__", "/"): text for path, text in files.items()}


@dataclass(slots=True)
class Ended:
    """What became of a trial: its facts by kind, and how its attempt failed if it did."""

    trajectory: ev.TrajectoryRecorded | None = None
    verified: ev.TrialVerified | None = None
    failure: AttemptFailedError | None = None

    @property
    def outcome(self) -> tuple[float | None, str]:
        """The reward, and the class of what went wrong."""
        if self.failure is not None:
            return None, self.failure.error
        assert self.verified is not None
        return self.verified.reward, self.verified.error


class HeldUntilTried(Held):
    """Work whose worker stops once the trajectory is on the log: ``tried`` is set then."""

    async def finish_and_go_on(self, fact: ev.Fact, blobs: Sequence[bytes] = ()) -> None:
        """Record it, and never go on."""
        await Held.finish_and_go_on(self, fact, blobs)
        self.tried.set()
        await asyncio.Event().wait()

    tried: asyncio.Event


class FolderBlobs(MemoryBlobs):
    """Blobs in memory, but for large files: these are files of a folder, as in production."""

    def __init__(self, store: MemoryStore, folder: Path) -> None:
        super().__init__(store)
        self._folder = folder

    async def stage_file(self, path: Path) -> tuple[str, list[bytes]]:
        """Keep a large file as a file."""
        if path.stat().st_size <= MAX_INLINE_BLOB_BYTES:
            return await super().stage_file(path)
        with path.open("rb") as file:
            digest = (await asyncio.to_thread(hashlib.file_digest, file, "sha256")).hexdigest()
        self._folder.mkdir(exist_ok=True)
        await asyncio.to_thread(shutil.copyfile, path, self._folder / digest)
        return digest, []

    async def fetch(self, digest: str, path: Path) -> None:
        """Copy it back."""
        kept = self._folder / digest
        if kept.exists():
            await asyncio.to_thread(shutil.copyfile, kept, path)
        else:
            await super().fetch(digest, path)


@dataclass
class TaskWorker:
    """A worker. ``another`` is one that comes after it on the same host, with the same log."""

    provider: ImageProvider
    scratch: Path
    images: dict[str, str] = field(default_factory=lambda: {IMAGE: "host"})
    log: MemoryLog = field(default_factory=MemoryLog)
    provider_name: str = "bubblewrap"

    def __post_init__(self) -> None:
        self.blobs = FolderBlobs(self.log.store, self.scratch / "blobs")
        self.versions = {"verifier:harbor": "1", "agent:oracle": "1", "agent:nop": "1"}
        host = Host(
            {self.provider_name: self.provider},
            self.blobs,
            TaskStore(self.scratch / "tasks"),
            Scratch(self.scratch / "scratch"),
            ["support.*"],
            [Path("/")],
        )
        self.host = host
        self.trials = TaskTrials(host)

    def another(self, provider: ImageProvider | None = None) -> TaskWorker:
        """Return the next worker."""
        log = MemoryLog(self.log.store)
        return TaskWorker(
            provider or self.provider, self.scratch, self.images, log, self.provider_name
        )

    async def append(self, run_id: str, fact: ev.Fact) -> None:
        """Put a fact on the log."""
        (await self.log.commit(Append([new_event(run_id, fact)]))).check()

    async def ask(self, *tasks: Texts, parent: str | None = None, **settings: Any) -> str:
        """Ask for a run of tasks, or for a fork of one as it is now."""
        refs = [await self._ref(f"task-{n}", texts) for n, texts in enumerate(tasks)]
        digest = await self.blobs.put(manifest.encode(tuple(refs)))
        run_id = run_id_from(os.urandom(8))
        given: dict[str, Any] = {
            "tasks": {"manifest": digest, "count": len(refs)},
            "n_steps": 1,
            "prompts_per_step": len(refs),
            "n_samples": 1,
            "agent": "oracle",
            "learner": "none",
            "rubric": "task",
            "images": self.images,
            "provider": self.provider_name,
        }
        request = f.run_requested(run_id, **(given | settings))
        seen = [ev.Provenance(parent, await self.log.end(0))] if parent else []
        weights = first_weights(load(request.spec))
        await self.blobs.put(weights)
        await self.append(
            run_id,
            replace(
                request, lineage=seen, code=self.versions, initial_weights=bytes_digest(weights)
            ),
        )
        return run_id

    async def _ref(self, name: str, texts: Texts) -> manifest.TaskRef:
        files = {path: Entry("file", text.encode()) for path, text in texts.items()}
        task = read_task(name, files)
        return ref_of(task, await self.blobs.put(pack(task.files)))

    async def build(self, run_id: str, world_id: str = "w0") -> ev.WorldBuilt:
        """Build a task's image. Raises AttemptFailedError."""
        run = await self.runs.get(run_id)
        fact = ev.WorldRequested(
            world_id, run.keys.world(world_id), task=run.keys.task(world_id).blob
        )
        await self.append(run_id, fact)
        held = await self.claim(WorkName(run_id, world_id, BUILD_WORLD), fact)
        await self.trials.on_world_requested(held)
        return await self._fact(run_id, f"world:{world_id}", ev.WorldBuilt)

    @property
    def runs(self) -> Runs:
        """What this worker knows of runs."""
        return Runs(self.log, self.versions, self.blobs)

    async def claim(self, name: WorkName, origin: ev.Fact, kind: type[Held] = Held) -> Held:
        """Claim a piece of work."""
        claim = (await self.log.commit(Claim(name.key, 30_000))).check()
        run, message = await self.runs.get(name.run_id), cast("Msg", None)
        failures, injected = claim.failures, claim.injected
        return kind(
            name, run, origin, claim.fence, failures, injected, 30_000, self.log, message, "worker"
        )

    async def request(self, run_id: str, trial_id: str = TRIAL, kind: type[Held] = Held) -> Held:
        """Request a trial whose image is built, and claim it."""
        built = await self.build(run_id, f"w{trial_id.split('-')[1][1:]}")
        run = await self.runs.get(run_id)
        weights = run.request.initial_weights
        key = run.keys.generate(trial_id, built.digest, weights)
        fact = ev.TrialRequested(trial_id, 0, built.world_id, built.digest, 0, weights, key)
        await self.append(run_id, fact)
        return await self.claim(WorkName(run_id, trial_id, GENERATE), fact, kind)

    async def play(self, run_id: str, trial_id: str = TRIAL) -> Ended:
        """Play a trial from its request to its end."""
        return await self.work(await self.request(run_id, trial_id))

    async def tried(self, run_id: str) -> ev.TrajectoryRecorded:
        """Play a trial up to its trajectory; the worker is stopped then."""
        held = await self.request(run_id, kind=HeldUntilTried)
        assert isinstance(held, HeldUntilTried)
        held.tried = asyncio.Event()
        work = asyncio.create_task(self.work(held))
        await held.tried.wait()
        await self.stop(work)
        return await self.trajectory(run_id)

    async def stop(self, work: asyncio.Task[Ended]) -> None:
        """End work as a worker that is told to stop does; its claims are free for others."""
        work.cancel()
        await asyncio.wait({work})
        for row in self.log.store.work.values():
            row.incarnation = None

    async def trajectory(self, run_id: str) -> ev.TrajectoryRecorded:
        """Return the trajectory that is on the log."""
        return await self._fact(run_id, f"trajectory:{TRIAL}", ev.TrajectoryRecorded)

    async def verify(self, run_id: str, fact: ev.TrajectoryRecorded) -> Ended:
        """Verify a trajectory that is on the log."""
        return await self.work(await self.claim(WorkName(run_id, fact.trial_id, VERIFY), fact))

    async def work(self, held: Held) -> Ended:
        """Handle claimed work; a failed attempt is put on the log as a consumer does."""
        ended = Ended()
        try:
            await self.trials.on_trial(held)
        except AttemptFailedError as error:
            ended.failure = error
            fact = ev.TrialAttemptFailed(
                held.name.subject, held.name.stage, held.failures, error.failure
            )
            await self.log.commit(Fail(held.name.key, held.fence, [held.event(fact)]))
        run_id, trial_id = held.name.run_id, held.name.subject
        for slot, kind in (("trajectory", "trajectory"), ("verified", "verified")):
            event = await self.log.at_slot(run_id, f"{slot}:{trial_id}")
            setattr(ended, kind, None if event is None else event.fact())
        return ended

    async def _fact(self, run_id: str, slot: str, kind: type[Any]) -> Any:
        event = await self.log.at_slot(run_id, slot)
        assert event is not None
        fact = event.fact()
        assert isinstance(fact, kind)
        return fact

    async def record_of(self, digest: str) -> dict[str, bytes]:
        """Return the files of a record by name."""
        packed = io.BytesIO(await self.blobs.get(digest))
        with tarfile.open(fileobj=packed, mode="r:gz") as tar:
            files = ((member.name, tar.extractfile(member)) for member in tar)
            return {name: file.read() for name, file in files if file is not None}

    async def kept(self, fact: ev.TrajectoryRecorded) -> KeptTrajectory:
        """Return a trajectory as it is kept."""
        return record.read(await self.blobs.get(fact.blob))
