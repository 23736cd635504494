"""Gathers what exports are made of: runs with their tasks, facts of trials, trajectories."""

from __future__ import annotations

import asyncio
import io
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec

from trialog.driver import queries
from trialog.driver.api.problems import not_found
from trialog.driver.api.reader import Reader, TrialFilter, check_run_id
from trialog.driver.export import atif
from trialog.driver.export.facts import TrialFacts, gathered, slots_of
from trialog.driver.export.given import Given, given_in
from trialog.driver.export.kept import Json, Kept, decoded, kept_of
from trialog.driver.export.played import steps_of
from trialog.driver.export.rows import Tried
from trialog.driver.export.run import ExportedRun
from trialog.driver.export.tally import Tally
from trialog.driver.export.unpack import Allowance, files_of
from trialog.driver.views import Doc
from trialog.proto import events as ev
from trialog.proto import runspec
from trialog.proto.ids import event_id, parse_trial_id
from trialog.proto.tasks.config import TaskConfig
from trialog.proto.tasks.files import TaskProblem
from trialog.proto.tasks.layout import Layout
from trialog.proto.tasks.legacy import CONFIG
from trialog.proto.tasks.parse import parse
from trialog.proto.tasks.task import instruction
from trialog.proto.tasks.task import steps_of as parts_of
from trialog.spine.blobs import BlobMissingError, BlobStore
from trialog.spine.log import EventLog, Recorded
from trialog.spine.runs import tasks_of

_KEPT_RUNS = 64
_KEPT_TASKS = 1024
_PAGE = 1000

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class TaskTexts:
    """What a task says: its settings, and its instructions step by step."""

    config: TaskConfig | None = None
    instructions: tuple[str, ...] = ()


class ExportReader:
    """Reads for exports. What a run was asked for and what a task says never change: both are
    kept."""

    def __init__(self, log: EventLog, blobs: BlobStore, reader: Reader) -> None:
        self._log, self._reader = log, reader
        self.blobs = blobs
        self._runs = _Kept[str, ExportedRun](_KEPT_RUNS)
        self._tasks = _Kept[str, TaskTexts](_KEPT_TASKS)

    async def run(self, run_id: str) -> ExportedRun:
        """Return a run with its tasks; a manifest that is lost costs their names. Raises a 404
        problem."""
        check_run_id(run_id)
        known = self._runs.get(run_id)
        if known is not None:
            return known
        event = await self._log.at_slot(run_id, "run")
        fact = event.fact() if event else None
        if not isinstance(fact, ev.RunRequested):
            raise not_found("run", f"there is no run {run_id}")
        spec = runspec.load(fact.spec)
        try:
            tasks = await tasks_of(self.blobs, spec)
        except BlobMissingError:
            return ExportedRun(run_id, spec, fact.code)
        return self._runs.put(run_id, ExportedRun(run_id, spec, fact.code, tasks))

    async def task(self, run: ExportedRun, trial_id: str) -> TaskTexts:
        """Return what a trial's task says; nothing in the reference world, or where it is lost."""
        task = run.task(trial_id)
        if task is None:
            return TaskTexts()
        known = self._tasks.get(task.blob)
        if known is not None:
            return known
        try:
            packed = await self.blobs.get(task.blob)
        except BlobMissingError:
            return TaskTexts()
        return self._tasks.put(task.blob, await asyncio.to_thread(_texts, packed))

    async def facts(self, doc: Doc) -> TrialFacts:
        """Return the facts of a trial: of a step that was recovered whole, those of the run that
        has it."""
        run_id, trial_id = doc["run_id"], doc["trial_id"]
        source = await self.source(run_id, parse_trial_id(trial_id).step)
        if source != run_id:
            doc = await self._reader.trial(source, trial_id)
        spec = (await self.run(source)).spec
        names = [event_id(source, slot) for slot in slots_of(doc, spec.retries.lost)]
        rows = await self._reader.fetch(queries.EVENTS, names)
        events = sorted((Recorded(*row) for row in rows), key=attrgetter("position"))
        return gathered(trial_id, events)

    async def source(self, run_id: str, step: int) -> str:
        """Return the run that has the trials of a step: another where it was recovered whole."""
        found = await self._reader.step_page(run_id, step, -1, 1)
        docs = [one if isinstance(one, dict) else msgspec.json.decode(one) for _, one in found]
        return next((doc["source"] for doc in docs if doc["source"]), run_id)

    async def tried(self, run: ExportedRun, doc: Doc) -> Tried:
        """Return a trial with its trajectory."""
        kept = kept_of(await self._bytes(doc["trajectory"]))
        texts = await self.task(run, doc["trial_id"])
        return Tried(doc, kept, await self._documents(run, doc, kept), texts.instructions)

    async def told(self, doc: Doc, facts: TrialFacts) -> Json:
        """Return what one trial says of its error and of its task's steps."""
        kept = kept_of(await self._bytes(doc["trajectory"]))
        texts = await self.task(await self.run(doc["run_id"]), doc["trial_id"])
        given: Given = {}
        if kept.of_steps:
            record = io.BytesIO(await self._bytes(facts.verifier_record))
            given = await asyncio.to_thread(given_in, record)
        said = next((part.message for part in kept.parts if part.error), "")
        return {"error_message": said or None, "steps": steps_of(kept, texts.config, given)}

    async def _documents(self, run: ExportedRun, doc: Doc, kept: Kept) -> list[Json]:
        if not kept.parts:
            about = (f"{run.run_id}/{doc['trial_id']}", run.spec.agent, run.agent_version)
            return [atif.reference(kept, *about)] if kept.turns else []
        return [decoded(await self._bytes(part.atif)) or {} for part in kept.parts]

    async def _bytes(self, digest: str | None) -> bytes:
        try:
            return await self.blobs.get(digest) if digest else b""
        except BlobMissingError:
            return b""

    async def tally(self, run: ExportedRun, step: int | None = None) -> Tally:
        """Return how the tasks of a run went, trial by trial, a page at a time in memory."""
        tally = Tally()
        for task in run.tasks if step is None else ():
            tally.begin(task.name)
        after = ""
        while True:
            wanted = TrialFilter(step, None, after)
            docs = await self._reader.trial_page(run.run_id, wanted, _PAGE)
            for doc in docs:
                tally.add(run.task_name(doc["trial_id"]), doc)
            if len(docs) < _PAGE:
                return tally
            after = docs[-1]["trial_id"]


def _texts(packed: bytes) -> TaskTexts:
    """Read a packed task: its settings and instructions, not its other files."""
    allowance = Allowance()
    found = {
        "/".join(one.parts): one.data for one in files_of(io.BytesIO(packed), _is_text, allowance)
    }
    try:
        config, _ = parse(found.get(CONFIG, b""))
        layout = Layout(config, found)
        paths = [layout.instruction(step) for step in parts_of(config)]
        return TaskTexts(config, tuple(instruction(path, found[path]) for path in paths))
    except (TaskProblem, KeyError):
        return TaskTexts()  # it was readable when the run was asked for: then the code is another


def _is_text(parts: tuple[str, ...]) -> bool:
    return parts == (CONFIG,) or parts[-1] == "instruction.md"


class _Kept(Generic[_Key, _Value]):
    """What was used last, up to a number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[_Key, _Value] = OrderedDict()

    def get(self, key: _Key) -> _Value | None:
        """Return what is kept of a key."""
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def put(self, key: _Key, value: _Value) -> _Value:
        """Keep a value and return it."""
        self._known[key] = value
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return value
