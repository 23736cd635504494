"""Archives that an adversary filled: what comes out is plain files with harmless names."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import exports as x
from trialog.driver.export.unpack import Allowance, UnsafeNameError, files_of, parts_of, shown

Member = Callable[[tarfile.TarFile], None]


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> Member:
    def add(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, link, len(data)
        archive.addfile(info, io.BytesIO(data))

    return add


def archive(*members: Member) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for add in members:
            add(made)
    return out.getvalue()


def read(data: bytes, allowance: Allowance | None = None) -> tuple[dict[str, bytes], list[str]]:
    allowance = allowance or Allowance()
    found = {
        "/".join(one.parts): one.data
        for one in files_of(io.BytesIO(data), lambda _: True, allowance)
    }
    return found, [reason for _, reason in allowance.left_out]


@pytest.mark.parametrize("gz", [False, True])
def test_files_come_out_whole(gz: bool) -> None:
    large = bytes(range(256)) * 9000  # more than is read at once
    found, left = read(x.tar({"./a/b": large, "c": b""}, gz=gz))
    assert (found, left) == ({"a/b": large, "c": b""}, [])


@pytest.mark.parametrize(
    "name",
    [
        "../out",
        "/etc/passwd",
        "a/../../b",
        "a\nb",
        "a\x1b[2J",
        "d\\..\\e",
        "n" * 256,
        "/".join("d" * 65),
    ],
)
def test_a_name_that_could_lead_elsewhere_is_left_out(name: str) -> None:
    found, left = read(archive(member(name, b"x"), member("fine", b"y")))
    assert found == {"fine": b"y"}
    assert len(left) == 1


def test_a_name_that_is_no_text_is_left_out_and_can_be_told() -> None:
    allowance = Allowance()
    read(archive(member("\udcff\udcfe", b"x")), allowance)
    ((name, reason),) = allowance.left_out
    name.encode()
    assert reason == "its name is not plain text"


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
def test_only_regular_files_come_out(kind: bytes) -> None:
    found, left = read(archive(member("odd", kind=kind, link="/etc/passwd"), member("a", b"1")))
    assert (found, left) == ({"a": b"1"}, ["is no regular file"])


def test_the_first_of_a_name_counts() -> None:
    found, left = read(archive(member("a", b"1"), member("./a", b"2")))
    assert (found, left) == ({"a": b"1"}, ["is there twice"])


def test_what_is_above_a_limit_is_told_and_the_rest_comes_out() -> None:
    allowance = Allowance(files=2, bytes=8, file_bytes=5)
    data = archive(
        *(member(name, size * b"x") for name, size in [("a", 6), ("b", 5), ("c", 4), ("d", 3)]),
        member("e", b""),
    )
    found, left = read(data, allowance)
    assert sorted(found) == ["b", "d"]
    assert left == [
        "has 6 bytes; the limit of a file is 5",
        "the trial's files are above their limit together",
        "the trial has too many files",
    ]


def test_of_very_many_names_only_some_are_told() -> None:
    allowance = Allowance()
    for number in range(1500):
        allowance.refuse(str(number), "odd")
    assert (len(allowance.left_out), allowance.more_left_out) == (1000, 500)


@pytest.mark.parametrize(
    "data",
    [b"", b"no archive", b"\x1f\x8bno gzip either", archive(member("a", b"x" * 4096))[:2000]],
)
def test_a_broken_archive_ends_early(data: bytes) -> None:
    _, left = read(data)
    assert left[-1].startswith("cannot be read on")


def test_a_header_that_claims_a_gigabyte_takes_no_memory() -> None:
    """A PAX header is read whole by whoever parses it; gzip makes a kilobyte of a gigabyte."""
    info = tarfile.TarInfo("a")
    info.type, info.size = tarfile.XHDTYPE, 1 << 30
    hostile = gzip.compress(info.tobuf() + bytes(64 << 20))
    tracemalloc.start()
    try:
        _, left = read(hostile)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left == ["cannot be read on: ReadError"]
    assert peak < 8 << 20


def test_what_is_wanted_alone_is_read() -> None:
    allowance = Allowance()
    data = archive(member("a/b", b"1"), member("c", b"2"))
    found = list(files_of(io.BytesIO(data), lambda parts: parts[0] == "c", allowance))
    assert [(one.parts, one.data) for one in found] == [(("c",), b"2")]
    assert (allowance.left_out, allowance.files) == ([], 19_999)


def test_names_are_shown_in_one_line() -> None:
    assert shown("a\n\x1b" + "b" * 400) == "a\\n\\x1b" + "b" * 294 + "..."
    assert parts_of("./a//b") == ("a", "b")
    with pytest.raises(UnsafeNameError):
        parts_of(".")


@given(st.data())
def test_whatever_is_broken_in_an_archive_nothing_but_plain_files_comes_out(
    data: st.DataObject,
) -> None:
    kinds = st.sampled_from([tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE])
    text = st.text(max_size=30)
    drawn = data.draw(st.lists(st.tuples(text, st.binary(max_size=600), kinds, text), max_size=4))
    made = bytearray(archive(*(member(name, b, kind, link) for name, b, kind, link in drawn)))
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)))):
        made[at % len(made)] = value
    packed = gzip.compress(bytes(made)) if data.draw(st.booleans()) else bytes(made)
    found, _ = read(packed)
    for name, content in found.items():
        parts = name.split("/")
        assert name.isprintable() and "\\" not in name
        assert not {"", ".", ".."} & set(parts) and len(content) <= 64 << 20
