"""A run of two tasks as the log and the blob store have it, and what an export makes of it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from support import facts as f
from trialog.driver.export.facts import gathered
from trialog.driver.export.folder import Exported, write_folder
from trialog.driver.export.run import ExportedRun
from trialog.driver.views import Doc, evolve_trial
from trialog.proto import events as ev
from trialog.proto.runspec import RunSpec
from trialog.proto.tasks.config import TaskConfig
from trialog.proto.tasks.manifest import TaskRef
from trialog.spine.blobs import BlobStore

TRIAL = "s0-p0-n0"
TASKS = (
    TaskRef("hello", "b" * 64, "e", "a", "s", "v"),
    TaskRef("steps", "c" * 64, "e", "a", "s", "v"),
)


def spec(**settings: Any) -> RunSpec:
    """Return the settings of a run of two tasks by the oracle."""
    known = {
        "n_steps": 1,
        "prompts_per_step": 2,
        "n_samples": 1,
        "tasks": {"path": "/srv/tasks", "manifest": "d" * 64, "count": 2},
        "agent": "oracle",
        "learner": "none",
        "rubric": "task",
    }
    return RunSpec.model_validate(known | settings)


def run(**settings: Any) -> ExportedRun:
    """Return it as exports know it."""
    return ExportedRun(f.RUN, spec(**settings), {"agent:oracle": "f" * 64}, TASKS)


def tar(files: Mapping[str, bytes], *, gz: bool = False) -> bytes:
    """Return an archive of files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if gz else "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def document(*steps: dict[str, Any]) -> dict[str, Any]:
    """Return an ATIF document of steps."""
    return {
        "schema_version": "ATIF-v1.8",
        "session_id": "s",
        "agent": {"name": "oracle", "version": "1"},
        "steps": [{"step_id": n, **step} for n, step in enumerate(steps, 1)],
    }


SAID = document(
    {"source": "user", "message": "Say hello.", "timestamp": "2026-11-30T12:00:02.000Z"},
    {
        "source": "agent",
        "message": "I write it.",
        "timestamp": "2026-11-30T12:00:03.000Z",
        "tool_calls": [
            {"tool_call_id": "c1", "function_name": "exec", "arguments": {"command": "echo hello"}}
        ],
        "observation": {"results": [{"source_call_id": "c1", "content": "hello"}]},
        "metrics": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "cost_usd": 0.25,
            "prompt_token_ids": [1, 2, 3],
            "completion_token_ids": [4, 5],
            "logprobs": [-0.5, -0.25],
        },
    },
)


async def part(
    blobs: BlobStore, said: dict[str, Any] = SAID, step: str | None = None, **more: Any
) -> dict[str, Any]:
    """Return a try as a trajectory's blob names it; its document is kept."""
    atif = await blobs.put(msgspec.json.encode(said))
    known = {"step": step, "atif": atif, "error": "", "message": "", "n_turns": 1, "result": {}}
    return known | more


async def tried(
    blobs: BlobStore, *parts: dict[str, Any], trial_id: str = TRIAL, **more: Any
) -> ev.TrajectoryRecorded:
    """Return a trajectory whose bytes are kept."""
    content = {"turns": [], "answer": None, "files": ["app/hello.txt"], "steps": list(parts)}
    blob = await blobs.put(msgspec.json.encode(content))
    return ev.TrajectoryRecorded(trial_id, 0, "k", "meaning", blob, 1, 0, **more)


def graded(trial_id: str = TRIAL, reward: float = 1.0, **more: Any) -> ev.TrialVerified:
    """Return what a verifier said."""
    known: dict[str, Any] = {"rewards": {"reward": reward}, "mode": "separate"}
    return ev.TrialVerified(
        trial_id, 0, "k", reward >= 1, None, "meaning", "0" * 64, 1, reward=reward, **known | more
    )


def judged(trial_id: str = TRIAL, reward: float = 1.0) -> ev.Judged:
    """Return the verdict of the rubric that leaves the verifier's reward alone."""
    return f.judged(trial_id, reward=reward, scores={})


def document_of(trial_id: str, facts: Sequence[ev.Fact]) -> Doc:
    """Return a trial's document."""
    doc: Doc | None = None
    for event in f.recorded(f.RUN, facts):
        doc = evolve_trial(doc, event, event.fact())
    assert doc is not None
    return doc | {"trial_id": trial_id}


async def exported(
    blobs: BlobStore,
    facts: Sequence[ev.Fact],
    trial_id: str = TRIAL,
    of: ExportedRun | None = None,
    config: TaskConfig | None = None,
) -> dict[str, bytes]:
    """Return the files of an exported trial by their paths."""
    events = f.recorded(f.RUN, facts)
    doc = document_of(trial_id, facts)
    out = io.BytesIO()
    trial = Exported(of or run(), doc, gathered(trial_id, events), config)
    await write_folder(trial, blobs, out)
    return members(out)


def members(out: io.BytesIO) -> dict[str, bytes]:
    """Return the files of an exported trial by their paths."""
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        found = archive.getmembers()
        assert all(member.isreg() for member in found)
        assert found[-1].name == "result.json"
        files = {member.name: archive.extractfile(member) for member in found}
    return {name: file.read() for name, file in files.items() if file is not None}


def unpacked(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files into a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
