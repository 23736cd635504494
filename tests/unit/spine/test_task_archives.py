"""Reading an uploaded archive without trusting it."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from support.task_folders import FILES, archived, entries, header, tarred, written
from trialog.proto.tasks import files as limits
from trialog.proto.tasks.files import TaskProblem
from trialog.proto.tasks.task import Task, read_task
from trialog.spine.tasks import archives
from trialog.spine.tasks.archives import ArchiveTooLargeError, Spool, tasks_in
from trialog.spine.tasks.folders import Read, tasks_of
from trialog.spine.tasks.packing import pack_many

SOUND = {f"a/{path}": text.encode() for path, text in FILES.items()}
LIMIT = 10_000_000


def read(data: bytes, *, piece: int = 4096, limit: int = LIMIT) -> list[Read]:
    """Return the tasks of an archive that comes in pieces."""
    spool = Spool(None, limit)
    try:
        for at in range(0, len(data), piece):
            spool.write(data[at : at + piece])
        return list(tasks_in(spool.finish()))
    finally:
        spool.close()


def refused(data: bytes) -> TaskProblem:
    with pytest.raises(TaskProblem) as caught:
        read(data)
    return caught.value


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("piece", [1, 7, 512, 1 << 20])
def test_tasks_come_out_as_they_went_in(zipped: bool, piece: int) -> None:
    found = read(archived("b", "a", zipped=zipped), piece=piece)
    # tarred() keeps no modes: scripts are plain files there.
    plain = {path: text.encode() for path, text in FILES.items()}
    expected = [read_task(name, _plain(plain)) for name in ("a", "b")]
    assert [one for _, one in found] == expected


def _plain(files: dict[str, bytes]) -> Any:
    found = entries(dict(files))
    return {
        path: type(entry)(entry.kind, entry.data, False, entry.target)
        for path, entry in found.items()
    }


def test_what_the_command_packs_is_what_a_folder_holds(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path / name)
        (tmp_path / name / "tests" / "more.sh").symlink_to("test.sh")
        (tmp_path / name / "environment" / "empty").mkdir()
    there = list(tasks_of(tmp_path))
    out = io.BytesIO()
    pack_many(((name, one.files) for name, one in there if isinstance(one, Task)), out)
    assert read(out.getvalue()) == there


def test_a_task_at_the_top_has_the_name_that_it_gives_itself() -> None:
    top = {path: text.encode() for path, text in FILES.items()}
    ((name, _),) = read(tarred(top))
    assert name == "task"
    named = top | {"task.toml": b'[task]\nname = "acme/hello"\n'}
    ((name, one),) = read(tarred(named))
    assert name == "hello" and isinstance(one, Task) and one.name == "hello"


def test_one_folder_around_all_is_looked_into() -> None:
    wrapped = {f"./tasks/{path}": data for path, data in SOUND.items()}
    assert [name for name, _ in read(tarred(wrapped))] == ["a"]
    alone = {f"hello/{path}": text.encode() for path, text in FILES.items()}
    assert [name for name, _ in read(tarred(alone))] == ["hello"]


def test_hidden_folders_and_others_are_passed_over() -> None:
    more = {".git/HEAD": b"x", "README.md": b"x", "a/.git/x": b"y"}
    ((name, one),) = read(tarred(SOUND | more))
    assert name == "a" and isinstance(one, Task) and ".git/x" not in one.files


HOSTILE = [
    ({"../evil": b"x"}, "../evil", "leads out"),
    ({"/etc/cron.d/evil": b"x"}, "/etc/cron.d/evil", "leads out"),
    ({"a/../../evil": b"x"}, "a/../../evil", "leads out"),
    ({"a/hard": header("a/hard", tarfile.LNKTYPE, "a/task.toml")}, "a/hard", "is a hard link"),
    ({"a/hard": header("a/hard", tarfile.LNKTYPE, "/etc/passwd")}, "a/hard", "is a hard link"),
    ({"a/dev": header("a/dev", tarfile.CHRTYPE)}, "a/dev", "no plain file"),
    ({"a/dev": header("a/dev", tarfile.BLKTYPE)}, "a/dev", "no plain file"),
    ({"a/fifo": header("a/fifo", tarfile.FIFOTYPE)}, "a/fifo", "no plain file"),
    ({"a/l": header("a/l", tarfile.SYMTYPE, "x"), "a/l/y": b"x"}, "l/y", "lies below l"),
    ({"a/caf\udce9": b"x"}, "a/caf\\xe9", "not UTF-8"),
]


@pytest.mark.parametrize(("more", "file", "said"), HOSTILE)
def test_hostile_members_are_named(more: dict[str, Any], file: str, said: str) -> None:
    data = tarred(SOUND | more)
    if file.startswith("l/"):
        ((_, problem),) = read(data)  # of one task: the others may be sound
        assert isinstance(problem, TaskProblem)
    else:
        problem = refused(data)
    assert problem.file == file and said in str(problem)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "../../../etc/passwd"])
def test_a_link_out_of_its_task_is_named(target: str) -> None:
    data = tarred(SOUND | {"a/tests/l": header("a/tests/l", tarfile.SYMTYPE, target)})
    ((_, problem),) = read(data)
    assert isinstance(problem, TaskProblem)
    assert problem.file == "tests/l" and "leads out" in str(problem)


def test_a_task_cannot_reach_the_one_beside_it() -> None:
    two = archived("a", "b")
    out = io.BytesIO(two)
    with tarfile.open(fileobj=out, mode="a") as archive:
        archive.addfile(header("a/tests/l", tarfile.SYMTYPE, "../../b/tests/test.sh"))
    (_, first), (_, second) = read(out.getvalue())
    assert isinstance(first, TaskProblem) and isinstance(second, Task)


def test_a_name_given_twice_is_refused() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for _ in range(2):
            archive.addfile(tarfile.TarInfo("a/task.toml"), io.BytesIO(b""))
    assert "a/task.toml: is in the archive twice" in str(refused(out.getvalue()))


def test_folders_may_be_named_twice() -> None:
    more = {"a": header("a", tarfile.DIRTYPE), "./a/": header("./a/", tarfile.DIRTYPE)}
    assert len(read(tarred(more | SOUND))) == 1


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a/sparse")
    member.pax_headers = {"GNU.sparse.size": str(1 << 40), "GNU.sparse.map": "0,1"}
    member.size = 1
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(b"x"))
    assert "a/sparse" in str(refused(out.getvalue() + b""))


def test_a_file_above_the_limit_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_FILE_BYTES", 1000)
    ((_, problem),) = read(tarred(SOUND | {"a/tests/big": b"x" * 1001}))
    assert isinstance(problem, TaskProblem) and problem.file == "tests/big"
    monkeypatch.setattr(limits, "MAX_TASK_BYTES", 900)
    ((_, problem),) = read(tarred(SOUND | {"a/tests/big": b"x" * 900}))
    assert "MiB together" in str(problem)
    monkeypatch.setattr(limits, "MAX_ENTRIES", 3)
    ((_, problem),) = read(tarred(SOUND))
    assert "more than 3 files" in str(problem)


def test_members_and_tasks_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    assert "more than 3 members" in str(refused(tarred(SOUND)))
    monkeypatch.undo()
    monkeypatch.setattr(limits, "MAX_TASKS", 1)
    assert "holds 2 tasks; at most 1" in str(refused(archived("a", "b")))


def test_a_bomb_is_counted_as_it_unpacks() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    assert len(bomb) < 60_000
    spool = Spool(None, 1_000_000)
    with pytest.raises(ArchiveTooLargeError):
        spool.write(bomb)
    spool.close()


def test_a_plain_archive_is_counted_too() -> None:
    spool = Spool(None, 1000)
    spool.write(b"x" * 1000)
    with pytest.raises(ArchiveTooLargeError):
        spool.write(b"x")
    spool.close()


def test_a_header_that_says_it_is_huge_is_not_read_whole() -> None:
    huge = tarfile.TarInfo("a")
    huge.type, huge.size = tarfile.XHDTYPE, 3 << 30
    data = huge.tobuf(tarfile.USTAR_FORMAT) + b"1 x=y\n" * 1000
    assert "a header is too large" in str(refused(data))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "cannot be read"),
        (b"\x1f", "cannot be read"),
        (b"not a tar at all" * 100, "cannot be read"),
        (b"PK\x03\x04" + b"\0" * 600, "cannot be read"),
        (b"\0" * 10240, "holds no task"),
        (tarred({"notes/a": b"x"}), "holds no task"),
        (gzip.compress(tarred(SOUND))[:-20], "cut short"),
        (gzip.compress(tarred(SOUND))[:50] + b"garbage" * 40, "gzip is broken"),
        (tarred(SOUND)[:1500], "cut short or broken after a/"),
        (tarred(SOUND)[: 512 * 3], "unexpected end of data"),
        (tarred(SOUND)[:1100] + b"garbage", "cut short or broken after a/"),
    ],
)
def test_what_is_no_archive_of_tasks_is_refused(data: bytes, said: str) -> None:
    assert said in str(refused(data))


def test_gzip_of_several_parts_and_padding_is_taken() -> None:
    tar = tarred(SOUND)
    parts = gzip.compress(tar[:700]) + gzip.compress(tar[700:]) + b"\0" * 512
    assert len(read(parts)) == 1


def test_an_archive_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    spool = Spool(tmp_path, LIMIT)
    spool.write(archived("a", zipped=True))
    assert len(list(tasks_in(spool.finish()))) == 1
    assert not any(tmp_path.iterdir()), "there is no name, whatever happens to the process"
    spool.close()


def test_tasks_can_be_read_more_than_once() -> None:
    spool = Spool(None, LIMIT)
    spool.write(archived("a", "b"))
    tar = spool.finish()
    assert list(tasks_in(tar)) == list(tasks_in(tar))
    spool.close()
