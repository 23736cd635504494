"""Archives are deterministic, checked before they are trusted, and unpacked whole or not at all."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest
from trialog.sandbox.errors import WorldError
from trialog.sandbox.worlds import reference
from trialog.sandbox.worlds.archive import entries, pack
from trialog.sandbox.worlds.store import WorldStore


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_reference_world_is_the_same_bytes_for_ever() -> None:
    """A change here changes every world digest on the log: it needs a new code version."""
    world = reference.build("w0")
    assert world.digest() == "2a793e123eb7ac98e9dca9cccb2ff53520a312404a5bfa92ae383879855d62d7"
    assert world.files()["docs/doc-4.txt"].startswith(b"title: Document 4 of w0\nowner: team-1\n")
    holders = [i for i, text in enumerate(world.docs) if reference.secret_in(text)]
    assert holders == [world.secret_doc]


@pytest.mark.parametrize(
    "bad",
    [
        member("/etc/passwd"),
        member("../x"),
        member("a/../../x"),
        member("dev", tarfile.CHRTYPE),
        member("pipe", tarfile.FIFOTYPE),
        member("hard", tarfile.LNKTYPE, "fine"),
        member("out", tarfile.SYMTYPE, "/etc/passwd"),
        member("a/up", tarfile.SYMTYPE, "../../x"),
        member("a/" * 70 + "deep"),
        member("n" * 256),
    ],
    ids=lambda info: info.name[:20],
)
def test_unsafe_members_are_refused(bad: tarfile.TarInfo) -> None:
    with pytest.raises(WorldError):
        list(entries(tar_of((member("fine"), b"x"), (bad, b""))))


@pytest.mark.parametrize(
    "damage", [b"", b"not a tar at all" * 100, pack({"a": b"x" * 5000})[:2000]]
)
def test_broken_archives_are_refused_and_leave_nothing(damage: bytes, tmp_path: Path) -> None:
    store = WorldStore(tmp_path)
    if damage == b"":
        damage = pack({"a": b"x"})[:700]
    with pytest.raises(WorldError):
        store.prepare(sha256(damage), damage)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_through_a_symlink(tmp_path: Path) -> None:
    """The link comes first in the archive and last on the disk."""
    evil = tar_of((member("d", tarfile.SYMTYPE, "e"), b""), (member("d/x"), b"hit"))
    store = WorldStore(tmp_path)
    with pytest.raises(WorldError):
        store.prepare(sha256(evil), evil)
    assert list(tmp_path.iterdir()) == []


def test_a_path_in_two_kinds_is_refused(tmp_path: Path) -> None:
    twice = tar_of((member("a"), b"x"), (member("a"), b"y"))
    with pytest.raises(WorldError):
        WorldStore(tmp_path).prepare(sha256(twice), twice)


def test_files_folders_and_links_are_laid_out(tmp_path: Path) -> None:
    script = member("bin/run")
    script.mode = 0o700
    tar = tar_of(
        (member("./", tarfile.DIRTYPE), b""),
        (member("empty", tarfile.DIRTYPE), b""),
        (script, b"#!/bin/sh\n"),
        (member("link", tarfile.SYMTYPE, "bin/run"), b""),
    )
    folder = WorldStore(tmp_path).prepare(sha256(tar), tar)
    assert (folder / "empty").is_dir()
    assert (folder / "bin/run").stat().st_mode & 0o777 == 0o755
    assert (folder / "bin/run").stat().st_mtime == 0
    assert (folder / "link").read_bytes() == b"#!/bin/sh\n"
    assert WorldStore(tmp_path).path(sha256(tar)) == folder
