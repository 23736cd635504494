"""Tasks for tests: as entries, as folders, as archives."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trialog.proto.canonical import bytes_digest
from trialog.proto.tasks.files import Entry
from trialog.proto.tasks.manifest import TaskRef
from trialog.proto.tasks.parts import ref_of
from trialog.proto.tasks.task import Task, read_task

TOML = 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n'
FILES: dict[str, str] = {
    "task.toml": TOML,
    "instruction.md": "Write 42 to /app/answer.txt.\n",
    "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
    "tests/test.sh": "grep -q 42 /app/answer.txt && echo 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "echo 42 > /app/answer.txt\n",
}
STEPS_TOML = TOML + '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
STEPS: dict[str, str | None] = {
    "task.toml": STEPS_TOML,
    "instruction.md": None,
    "steps/one/instruction.md": "First.\n",
    "steps/two/instruction.md": "Then.\n",
    "steps/two/tests/test.sh": "echo 0.5 > /logs/verifier/reward.txt\n",
    "steps/two/workdir/setup.sh": "touch ready\n",
}

Changes = Mapping[str, "str | bytes | Entry | None"]


def entries(changes: Changes | None = None) -> dict[str, Entry]:
    """Return a sound task's entries with others in place; None takes one away."""
    found: dict[str, Entry] = {}
    for path, value in (FILES | dict(changes or {})).items():
        if isinstance(value, Entry):
            found[path] = value
        elif value is not None:
            data = value if isinstance(value, bytes) else value.encode()
            found[path] = Entry("file", data, executable=path.endswith(".sh"))
    for path in list(found):
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            found.setdefault("/".join(parts[:depth]), Entry("dir"))
    return found


def link(target: str) -> Entry:
    """Return a symlink."""
    return Entry("symlink", target=target)


def task(changes: Changes | None = None, name: str = "answer") -> Task:
    """Return a task."""
    return read_task(name, entries(changes))


def ref(changes: Changes | None = None, name: str = "answer") -> TaskRef:
    """Return a task's digests; its blob's name is one of the files."""
    found = task(changes, name)
    blob = "".join(f"{path}{entry.data!r}" for path, entry in sorted(found.files.items()))
    return ref_of(found, bytes_digest(blob.encode()))


def written(folder: Path, changes: Changes | None = None) -> Path:
    """Write a task's folder and return it."""
    for path, entry in sorted(entries(changes).items()):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        match entry.kind:
            case "dir":
                place.mkdir(exist_ok=True)
            case "symlink":
                place.symlink_to(entry.target)
            case "file":
                place.write_bytes(entry.data)
                place.chmod(0o755 if entry.executable else 0o644)
    return folder


def tarred(files: Mapping[str, bytes | tarfile.TarInfo], *, zipped: bool = False) -> bytes:
    """Return a tar of members by name: bytes of a file, or a header as it is."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(out.getvalue()) if zipped else out.getvalue()


def header(name: str, kind: bytes, target: str = "", **more: Any) -> tarfile.TarInfo:
    """Return the header of a member that is no plain file."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    for key, value in more.items():
        setattr(member, key, value)
    return member


def archived(*names: str, changes: Changes | None = None, zipped: bool = False) -> bytes:
    """Return an archive of tasks, each in a folder of its name."""
    found = {
        f"{name}/{path}": entry.data
        for name in names
        for path, entry in entries(changes).items()
        if entry.kind == "file"
    }
    return tarred(found, zipped=zipped)
