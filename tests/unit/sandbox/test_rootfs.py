"""Unpacking root filesystems and states, names of bases, the store of images."""

from __future__ import annotations

import fcntl
import io
import os
import stat
import tarfile
from pathlib import Path

import pytest
from support.rootfs import add_file, add_link
from trialog.sandbox.bubblewrap import overlay, tools
from trialog.sandbox.errors import ImageError
from trialog.sandbox.images import Image, Recipe
from trialog.sandbox.rootfs import bases, recipe, state
from trialog.sandbox.rootfs.context import Context, Owner
from trialog.sandbox.rootfs.store import ImageStore, Stored
from trialog.sandbox.rootfs.unpack import Unpacker, inner_path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    made = tmp_path / "target"
    made.mkdir()
    return made


def unpack(target: Path, archive_bytes: io.BytesIO, base: int | None = None) -> None:
    archive_bytes.seek(0)
    with tarfile.open(fileobj=archive_bytes) as archive, Unpacker(target, base) as into:
        for member in archive:
            into.put(archive, member)


def folder(name: str, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, mode
    return member


def test_a_read_only_folder_is_filled_and_then_shut(target: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(folder("./d", 0o500))
        add_file(archive, "d/f", b"f", 0o4711)
        archive.addfile(folder("./", 0o750))
    unpack(target, out)
    assert stat.S_IMODE((target / "d").stat().st_mode) == 0o500
    assert stat.S_IMODE((target / "d/f").stat().st_mode) == 0o4711
    assert stat.S_IMODE(target.stat().st_mode) == 0o750


def test_links_inside_lead_inside(target: Path) -> None:
    """As in a layer over another: /bin is a link to /usr/bin, absolute or not."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        add_file(archive, "usr/bin/a", b"a")
        add_link(archive, "bin", "/usr/bin", tarfile.SYMTYPE)
        add_file(archive, "bin/b", b"b")
        add_link(archive, "up", "../../..", tarfile.SYMTYPE)
        add_file(archive, "up/usr/bin/c", b"c")
        add_link(archive, "hard", "bin/a", tarfile.LNKTYPE)
    unpack(target, out)
    assert sorted(p.name for p in (target / "usr/bin").iterdir()) == ["a", "b", "c"]
    assert (target / "hard").stat().st_ino == (target / "usr/bin/a").stat().st_ino


def test_a_link_is_replaced_not_written_through(target: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        add_link(archive, "f", str(outside), tarfile.SYMTYPE)
        add_file(archive, "f", b"theirs")
        add_link(archive, "d", str(tmp_path), tarfile.SYMTYPE)
        archive.addfile(folder("d", 0o700))
        add_file(archive, "d/x", b"x")
    unpack(target, out)
    assert outside.read_text() == "mine"
    assert not (target / "d").is_symlink()
    assert not (tmp_path / "x").exists()


def test_hard_links_to_what_is_outside_are_refused(target: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine")
    for name in ("../outside", "/outside", "none"):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            add_link(archive, "h", name, tarfile.LNKTYPE)
        with pytest.raises((ImageError, OSError)):
            unpack(target, out)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "a/../x", "a/..", "x" * 5000])
def test_names_that_lead_out(name: str) -> None:
    with pytest.raises(ImageError):
        inner_path(name)


def test_names_are_plain() -> None:
    assert [inner_path(n) for n in ("./a//b/", "/a", ".", "a/./b")] == ["a/b", "a", "", "a/b"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owners_are_shifted_also_of_folders_that_no_entry_names(target: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("unnamed/f")
        member.uid, member.gid = 5, 99_999
        archive.addfile(member)
    unpack(target, out, base=100_000)
    info = (target / "unnamed/f").stat()
    assert (info.st_uid, info.st_gid) == (100_005, 165_534)  # beyond the range: nobody
    assert (target / "unnamed").stat().st_uid == 100_000


def test_a_state_goes_out_and_in_unchanged(tmp_path: Path, target: Path) -> None:
    upper = tmp_path / "upper"
    (upper / "d").mkdir(parents=True)
    (upper / "d/f").write_bytes(b"f" * 3000)
    (upper / "d/f").chmod(0o640)
    os.link(upper / "d/f", upper / "h")
    (upper / "l").symlink_to("/etc/passwd")
    (upper / ".wh.x").write_text("a name like any other")
    os.mknod(upper / "gone", stat.S_IFCHR, os.makedev(0, 0))
    os.setxattr(upper / "d", state.OPAQUE, b"y")
    os.mkfifo(upper / "pipe")
    saved = state.pack(upper, tmp_path / "s", 10_000)
    state.unpack([tmp_path / "s"], target)
    assert state.pack(target, tmp_path / "again", 10_000).digest() == saved.digest()
    assert os.getxattr(target / "d", state.OPAQUE) == b"y"
    assert (target / "h").stat().st_ino == (target / "d/f").stat().st_ino
    assert stat.S_ISCHR((target / "gone").lstat().st_mode)
    assert [(e.path, e.kind) for e in saved.entries if e.kind == "deleted"] == [
        ("d", "deleted"),
        ("gone", "deleted"),
    ]


def test_a_folder_that_is_gone_has_no_size(tmp_path: Path) -> None:
    """A sandbox may be destroyed while its disk is looked at."""
    assert overlay.usage(tmp_path / "gone") == overlay.Usage(0, 0)


def test_a_later_state_wins(tmp_path: Path, target: Path) -> None:
    states: list[Path] = []
    for at, make in enumerate(("first", "second", "third")):
        upper = tmp_path / make
        upper.mkdir()
        if make == "second":
            os.mknod(upper / "d", stat.S_IFCHR, os.makedev(0, 0))
        else:
            (upper / "d").mkdir()
            (upper / "d" / make).write_text(make)
        states.append(tmp_path / f"s{at}")
        state.pack(upper, states[-1], 10_000)
    state.unpack(states, target)
    assert [p.name for p in (target / "d").iterdir()] == ["third"]
    # What the image has there was deleted by the second: the folder is a new one.
    assert os.getxattr(target / "d", state.OPAQUE) == b"y"


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        ("debian:12", "docker.io/library/debian:12"),
        ("docker.io/debian", "debian:latest"),
        ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("x@sha256:ab", "library/x@sha256:ab"),
    ],
)
def test_a_base_by_any_of_its_names(known: str, asked: str) -> None:
    assert bases.declared(asked, {known: "host"}) == "host"
    assert bases.declared(asked + "x", {known: "host"}) is None


def test_the_digest_of_a_host_image_is_no_others(tmp_path: Path) -> None:
    made = recipe.plan(Recipe(tmp_path, None, docker_image="a", images={"a": "host"}))
    assert (
        made.digest == recipe.plan(Recipe(tmp_path, docker_image="b", images={"b": "host"})).digest
    )
    with pytest.raises(ImageError, match="Dockerfile cannot be read"):
        recipe.plan(Recipe(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_context_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY x /\n")
    (tmp_path / "x").touch(mode=0)
    with pytest.raises(ImageError, match="x"):
        recipe.plan(Recipe(tmp_path))


def test_a_context_with_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """What is neither file, folder nor link is no part of a context, and is never opened."""
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
    before = recipe.plan(Recipe(tmp_path)).digest
    os.mkfifo(tmp_path / "pipe")
    assert recipe.plan(Recipe(tmp_path)).digest != before
    (only,) = Context(tmp_path).folder_entries("", "/", Owner())
    assert only.path == "/Dockerfile"


def test_context_patterns(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "d/c.py", "d/e/f.txt", ".hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".dockerignore").write_text("d/e\n!d/e/f.txt\nb.py\n")
    context = Context(tmp_path)
    assert context.find("*.py") == ["a.py"]
    assert context.find("d/*") == ["d/c.py"]
    assert context.find("./d/") == ["d"]
    assert context.find(".") == [""]
    assert [put.path for put in context.folder_entries("d", "/t", Owner())] == [
        "/t/c.py",
        "/t/e/f.txt",
    ]
    for none in ("b.py", "../a.py", "nothing*", "a.py/x"):
        with pytest.raises(ImageError):
            context.find(none)


def test_the_store_forgets_what_dead_makers_left(tmp_path: Path) -> None:
    store = ImageStore(tmp_path, None)
    dead, alive = tmp_path / "layers/.new-dead", tmp_path / "layers/.new-alive"
    for made in (dead, alive):
        made.mkdir()
    held = os.open(alive, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        store.sweep()
    finally:
        os.close(held)
    assert (dead.exists(), alive.exists()) == (False, True)


def test_a_layer_that_fails_is_not_there(tmp_path: Path) -> None:
    store = ImageStore(tmp_path, None)

    def fail(_: Path) -> None:
        raise ImageError("no")

    with pytest.raises(ImageError):
        store.layer("one", fail)
    assert list((tmp_path / "layers").iterdir()) == []
    assert store.layer("one", lambda made: (made / "f").touch()) == "one"
    assert store.layer("one", fail) == "one"
    stored = store.keep(Stored(Image("d" * 64, {"A": "b"}), ("one",)))
    assert store.find("d" * 64) == stored
    assert [path.name for path in store.paths(stored)] == ["one"]
    with pytest.raises(ImageError, match="is gone"):
        store.paths(Stored(stored.image, ("two",)))


def test_a_range_is_taken_only_where_it_can_be_mapped() -> None:
    whole, part = "0 0 4294967295\n", "0 100000 65536\n"
    expected = tools.RANGE_BASE if os.geteuid() == 0 else None
    assert tools.range_base(whole) == expected
    assert tools.range_base(part) is None
