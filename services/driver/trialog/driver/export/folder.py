"""One trial as Harbor's trial folder, in a tar archive whose last file is ``result.json``.

Bytes are read one blob at a time, states from a file: an export's size is the disk's matter.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as HostPath
from typing import IO

from trialog.driver.export import atif, layout, result
from trialog.driver.export.archive import Archive
from trialog.driver.export.facts import At, TrialFacts
from trialog.driver.export.given import Given, note
from trialog.driver.export.kept import Json, Kept, decoded, kept_of
from trialog.driver.export.run import ExportedRun
from trialog.driver.export.unpack import Allowance, files_of
from trialog.driver.views import Doc, timestamp
from trialog.proto import events as ev
from trialog.proto.tasks.config import TaskConfig
from trialog.spine.blobs import BlobMissingError, BlobStore

EXCEPTION = "exception.txt"


@dataclass(frozen=True, slots=True)
class Exported:
    """A trial that is to be exported: its document and facts, and what its task says."""

    run: ExportedRun
    doc: Doc
    facts: TrialFacts
    config: TaskConfig | None = None


@dataclass(slots=True)
class _Writing:
    """An export under way."""

    trial: Exported
    blobs: BlobStore
    archive: Archive
    folder: HostPath
    allowance: Allowance = field(default_factory=Allowance)
    rewards: Given = field(default_factory=dict[str, dict[str, float]])
    traces: dict[str, str] = field(default_factory=dict[str, str])


async def write_folder(trial: Exported, blobs: BlobStore, out: IO[bytes]) -> None:
    """Write a trial's folder as a tar archive. A blob that is lost costs its own files; what is
    left out is told in ``trialog.json``. Raises BlobsUnavailableError."""
    ended = trial.facts.ended_at
    archive = Archive(out, ended.timestamp() if ended else 0.0)
    with tempfile.TemporaryDirectory(prefix="trialog-export-") as folder:
        writing = _Writing(trial, blobs, archive, HostPath(folder))
        kept = await _trajectory(writing)
        documents = await _documents(writing, kept)
        await _verifier(writing, kept)
        await _states(writing, kept)
        await _attempts(writing)
        _results(writing, kept, documents)
    archive.close()


async def _trajectory(writing: _Writing) -> Kept:
    recorded = writing.trial.facts.trajectory
    blob = await _bytes(writing, recorded.fact.blob) if recorded else None
    return kept_of(blob) if blob else Kept()


async def _documents(writing: _Writing, kept: Kept) -> list[Json]:
    """Write the trajectories and return them: one a part, or the only one."""
    run, trial_id = writing.trial.run, writing.trial.facts.trial_id
    about = (f"{run.run_id}/{trial_id}", run.spec.agent, run.agent_version)
    found: list[Json] = []
    for part in kept.parts:
        blob = await _bytes(writing, part.atif) if part.atif else None
        found.append((blob and decoded(blob)) or atif.nothing(*about))
    if not kept.parts and kept.turns:
        found.append(atif.reference(kept, *about))
    if not found:
        found.append(atif.nothing(*about))
    homes = [layout.home(part.step) for part in kept.parts] or [()]
    for home, document in zip(homes, found, strict=True):
        writing.archive.add_json((*home, "agent", layout.TRAJECTORY), document)
    return found


async def _verifier(writing: _Writing, kept: Kept) -> None:
    """Write what the verifier left, of a trial that is not graded what its last attempt left."""
    facts = writing.trial.facts
    await _unpack_record(
        writing, facts.verifier_record, (), [part.step or "" for part in kept.parts]
    )
    given = facts.verified.fact.rewards if facts.verified else {}
    if given and not kept.of_steps:  # where the record is lost, or the reward was in memory only
        path = ("verifier", "reward.json")
        if not writing.archive.has(("verifier", "reward.txt")):
            writing.archive.add_json(path, given)


async def _unpack_record(
    writing: _Writing, digest: str, home: layout.Path, steps: list[str]
) -> None:
    source = await _file(writing, digest)
    if source is not None:
        await asyncio.to_thread(_add_record, writing, source, home, steps)


def _add_record(writing: _Writing, source: HostPath, home: layout.Path, steps: list[str]) -> None:
    with source.open("rb") as archive:
        for one in files_of(archive, lambda _: True, writing.allowance):
            path = layout.verifier_path(one.parts, steps)
            writing.archive.add((*home, *path), one.data, writing.allowance)
            if not home and len(path) == 4 and path[0] == "steps":
                note(writing.rewards, path[1], one)


async def _states(writing: _Writing, kept: Kept) -> None:
    """Write the agent's logs and the artifacts of each try, out of the state that it left."""
    recorded = writing.trial.facts.trajectory
    final = recorded.fact.state if recorded else ""
    states = [(part.step, part.state or final) for part in kept.parts] or [(None, final)]
    for step, digest in states:
        artifacts = layout.artifacts_of(writing.trial.config, step)
        source = await _file(writing, digest)
        if source is not None:
            await asyncio.to_thread(_add_state, writing, source, layout.home(step), artifacts)
            writing.allowance.left_out += artifacts.left_out
            path = (*layout.home(step), "artifacts", layout.MANIFEST)
            writing.archive.add_json(path, artifacts.manifest())


def _add_state(
    writing: _Writing, source: HostPath, home: layout.Path, artifacts: layout.Artifacts
) -> None:
    n = len(layout.AGENT_LOGS)
    wanted: dict[layout.Path, list[layout.Path]] = {}

    def is_wanted(parts: layout.Path) -> bool:
        targets = list(artifacts.targets(parts))
        if parts[:n] == layout.AGENT_LOGS:
            targets.append(("agent", *parts[n:]))
        if targets:
            wanted[parts] = [layout.placed(home, target) for target in targets]
        return bool(targets)

    with source.open("rb") as archive:
        for one in files_of(archive, is_wanted, writing.allowance):
            for target in wanted.pop(one.parts):
                writing.archive.add(target, one.data, writing.allowance)


async def _attempts(writing: _Writing) -> None:
    """Write what was tried and failed, each attempt in a folder of its own."""
    for number, failed in enumerate(writing.trial.facts.failures):
        home = ("attempts", str(number))
        writing.archive.add_json((*home, "attempt.json"), _attempt(failed))
        fact = failed.fact
        text = f"{fact.error or fact.failure}: {fact.message}\n"
        if fact.record in writing.trial.facts.traces:
            text = writing.traces[fact.record] = await _trace(writing, fact.record) or text
        elif fact.record:
            await _unpack_record(writing, fact.record, home, [])
        if fact.error or fact.message:
            writing.archive.add((*home, EXCEPTION), text.encode(errors="replace"))


async def _trace(writing: _Writing, digest: str) -> str:
    """Return where an agent's own code broke; "" where that is lost."""
    found = files_of(
        io.BytesIO(await _bytes(writing, digest) or b""),
        lambda parts: parts == (EXCEPTION,),
        writing.allowance,
    )
    return "".join(one.data.decode(errors="replace") for one in found)


def _attempt(failed: At[ev.TrialAttemptFailed]) -> Json:
    fact = failed.fact
    return {
        "stage": fact.stage,
        "failure": fact.failure,
        "error": fact.error or None,
        "message": fact.message,
        "n": fact.n,
        "injected": fact.injected,
        "worker": fact.worker,
        "recorded_at": timestamp(failed.at),
    }


def _results(writing: _Writing, kept: Kept, documents: list[Json]) -> None:
    trial = writing.trial
    skipped = trial.facts.skipped
    trace = writing.traces.get(skipped.fact.record, "") if skipped else ""
    about = result.Trial(trial.run, trial.doc, trial.facts, kept, documents, writing.rewards, trace)
    archive, left = writing.archive, writing.allowance
    exception = result.exception(trial.facts, kept, trace)
    if exception is not None:
        text = f"{exception['exception_type']}: {exception['exception_message']}".rstrip(": ")
        archive.add((EXCEPTION,), (trace or f"{text}\n").encode(errors="replace"))
    archive.add_json(("config.json",), result.config(about))
    task = trial.run.task(trial.facts.trial_id)
    told = {"left_out": list(_told(left)), "more_left_out": left.more_left_out}
    archive.add_json(("trialog.json",), trial.doc | {"task": task and task.name} | told)
    archive.add_json(("result.json",), result.result(about))


def _told(left: Allowance) -> Iterator[Json]:
    yield from ({"file": name, "reason": reason} for name, reason in left.left_out)


async def _bytes(writing: _Writing, digest: str) -> bytes | None:
    try:
        return await writing.blobs.get(digest)
    except BlobMissingError:
        writing.allowance.refuse(f"blob {digest}", "is lost")
        return None


async def _file(writing: _Writing, digest: str) -> HostPath | None:
    """Return a blob as a file that is gone with the export, None where there is none."""
    if not digest:
        return None
    path = writing.folder / "blob"
    path.unlink(missing_ok=True)
    try:
        await writing.blobs.fetch(digest, path)
    except BlobMissingError:
        writing.allowance.refuse(f"blob {digest}", "is lost")
        return None
    return path
