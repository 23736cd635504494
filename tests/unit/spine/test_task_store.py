"""Packing: the same content, the same bytes. The store: a task on a host is whole or not there."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest
from support.task_folders import STEPS, entries, link, task, written
from trialog.proto.tasks.files import Entry, TaskProblem
from trialog.proto.tasks.task import Task
from trialog.spine.tasks.folders import read_folder, tasks_of
from trialog.spine.tasks.packing import pack, unpack
from trialog.spine.tasks.store import TaskStore


def packed(one: Task) -> tuple[str, bytes]:
    data = pack(one.files)
    return hashlib.sha256(data).hexdigest(), data


class Blobs:
    """Counts what is fetched."""

    def __init__(self, *blobs: bytes) -> None:
        self.blobs = {hashlib.sha256(blob).hexdigest(): blob for blob in blobs}
        self.fetched: list[str] = []

    async def get(self, digest: str) -> bytes:
        self.fetched.append(digest)
        await asyncio.sleep(0)
        return self.blobs[digest]


def test_packing_depends_on_content_alone(tmp_path: Path) -> None:
    one = written(tmp_path / "one")
    two = written(tmp_path / "two")
    for n, path in enumerate(sorted(two.rglob("*"))):
        os.utime(path, (n, n * 1000))
        if path.is_file():
            path.chmod(path.stat().st_mode | 0o222)
    assert pack(read_folder(one)) == pack(read_folder(two))
    (two / "tests" / "test.sh").chmod(0o644)
    assert pack(read_folder(one)) != pack(read_folder(two))


def test_what_is_packed_comes_out_again() -> None:
    files = task(
        STEPS
        | {
            "tests/a b/é\U0001f600.txt": b"\0\xff",
            "tests/l": link("a b"),
            "tests/" + "long/" * 12 + "n" * 200: "x",
            "environment/empty": Entry("dir"),
        }
    ).files
    assert unpack(pack(files)) == files


@pytest.mark.parametrize("data", [b"x" * 600, b"", pack(entries())[:4000]])
def test_what_is_no_packed_task_is_refused(data: bytes) -> None:
    with pytest.raises(TaskProblem):
        unpack(data)


async def test_a_task_is_unpacked_once_and_opened_again_without_its_bytes(tmp_path: Path) -> None:
    one = task(STEPS | {"tests/run.sh": "x", "tests/l": link("run.sh")})
    digest, data = packed(one)
    blobs = Blobs(data)
    store = TaskStore(tmp_path)
    opened = await store.open(digest, blobs.get)
    assert opened.folder == tmp_path / digest
    assert read_folder(opened.folder) == one.files
    assert opened.config == one.config
    assert opened.layout.paths == one.layout.paths
    assert await store.open(digest, blobs.get) is opened
    again = await TaskStore(tmp_path).open(digest, blobs.get)
    assert again == opened
    assert blobs.fetched == [digest]


async def test_an_open_task_says_where_its_parts_are(tmp_path: Path) -> None:
    digest, data = packed(task(STEPS))
    opened = await TaskStore(tmp_path).open(digest, Blobs(data).get)
    one, two = opened.config.steps
    assert (opened.instruction(one), opened.instruction(two)) == ("First.\n", "Then.\n")
    assert opened.tests(two) == (opened.folder / "tests", opened.folder / "steps/two/tests")
    assert opened.solution(one) == opened.folder / "solution"
    assert opened.workdir(one) is None
    assert opened.workdir(two) == opened.folder / "steps/two/workdir"


async def test_many_at_once_make_one_folder(tmp_path: Path) -> None:
    digest, data = packed(task())
    blobs = Blobs(data)
    stores = [TaskStore(tmp_path) for _ in range(8)]
    opened = await asyncio.gather(*(store.open(digest, blobs.get) for store in stores))
    assert {one.folder for one in opened} == {tmp_path / digest}
    assert [one.name for one in tmp_path.iterdir()] == [digest], "nothing is left beside it"


async def test_what_a_crash_left_is_in_nobodys_way(tmp_path: Path) -> None:
    digest, data = packed(task())
    half = tmp_path / ".new-1-abcd"
    half.mkdir()
    (half / "task.toml").write_text("half")
    opened = await TaskStore(tmp_path).open(digest, Blobs(data).get)
    assert read_folder(opened.folder) == task().files


async def test_bytes_that_are_not_the_digests_are_refused(tmp_path: Path) -> None:
    digest, _ = packed(task())
    _, other = packed(task({"instruction.md": "Something else."}))

    async def lie(_: str) -> bytes:
        return other

    with pytest.raises(TaskProblem, match="not those of"):
        await TaskStore(tmp_path).open(digest, lie)
    for name in ("../" + "a" * 61, "A" * 64, ""):
        with pytest.raises(TaskProblem, match="no digest"):
            await TaskStore(tmp_path).open(name, lie)
    assert not any(tmp_path.iterdir())


async def test_a_task_that_was_taken_away_is_unpacked_anew(tmp_path: Path) -> None:
    digest, data = packed(task())
    blobs = Blobs(data)
    store = TaskStore(tmp_path)
    opened = await store.open(digest, blobs.get)
    opened.folder.rename(tmp_path / "away")
    assert (await store.open(digest, blobs.get)).folder.is_dir()
    assert len(blobs.fetched) == 2


def test_every_example_is_read_and_packed(tmp_path: Path) -> None:
    examples = Path(__file__).parents[3] / "examples" / "tasks"
    found = list(tasks_of(examples))
    assert len(found) >= 12
    for name, one in found:
        assert isinstance(one, Task), f"{name}: {one}"
        assert unpack(pack(one.files)) == one.files
