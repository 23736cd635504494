"""What is read of a Dockerfile, and what a build context holds."""

from __future__ import annotations

import io
import os
import tarfile
import time
from pathlib import Path

import pytest
from trialog.sandbox.docker import bases, context
from trialog.sandbox.errors import ImageError
from trialog.sandbox.rootfs.dockerfile import parse
from trialog.sandbox.rootfs.ignore import Ignore


def names(text: str) -> list[str]:
    return [base.name for base in bases.bases(parse(text))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("FROM debian:bookworm-slim\nRUN true\n", ["debian:bookworm-slim"]),
        ("# FROM a\n\nfrom --platform=linux/amd64 b AS c\n", ["b"]),
        ("ARG V=1\nARG W=x-$V\nFROM a:${W}\n", ["a:x-1"]),
        ("ARG V\nFROM a:${V:-2}\nARG V=3\nFROM b:$V\n", ["a:2", "b:"]),
        ("ARG V=1\nFROM a:${V:+2}\n", ["a:2"]),
        ('ARG V="1.2"\nFROM "a:${V}"\n', ["a:1.2"]),
        ("FROM a AS one\nFROM one\nCOPY --from=one /x /y\nCOPY --from=0 /x /y\n", ["a"]),
        ("FROM a\nCOPY --from=b:1 /x /y\n", ["a", "b:1"]),
        ("FROM scratch\n", []),
        ("FROM \\\n  # between\n  a \\\n  AS x\nRUN echo \\\n FROM b\n", ["a"]),
        ("# escape=`\nFROM `\n a\nRUN dir c:\\\nFROM b\n", ["a", "b"]),
    ],
)
def test_bases_are_what_docker_would_fetch(text: str, found: list[str]) -> None:
    assert names(text) == found


def test_only_the_bases_are_named_anew() -> None:
    text = "ARG V=1\nFROM \\\n  a:$V AS a\n# a:$V\nRUN echo a:$V\nCOPY --from=b /b /b\nFROM a\n"
    made = bases.rebased(text, bases.bases(parse(text)), {"a:1": "x/y:1", "b": "z"})
    expected = (
        "ARG V=1\nFROM \\\n  x/y:1 AS a\n# a:$V\nRUN echo a:$V\nCOPY --from=z /b /b\nFROM a\n"
    )
    assert made == expected


@pytest.mark.parametrize(
    ("rules", "left_out", "sent"),
    [
        ("*.log", ["a.log"], ["b/a.log", "a.logs"]),
        ("**/*.log", ["a.log", "b/c/a.log"], ["a.txt"]),
        ("/a/", ["a", "a/b"], ["b/a"]),
        ("a/**\n!a/keep", ["a/b", "a/b/c"], ["a/keep", "a/keep/all"]),
        ("*\n!src\nsrc/?.o", ["x", "src/a.o"], ["src", "src/a.c", "src/ab.o"]),
        ("# no\n\n[ab].txt", ["a.txt", "b.txt"], ["# no", "c.txt"]),
        ("a.b", ["a.b"], ["axb"]),
        (".", [], ["a"]),
        ("a/**/b", ["a/b", "a/x/y/b"], ["a/xb", "ab", "a"]),
        ("**/x/*", ["x/a", "a/b/x/c/d"], ["x", "ax/b"]),
        ("a**b", ["ab", "a/c/b", "axb/c"], ["a", "b"]),
        ("**", ["a", "a/b"], []),
        ("*/*/c", ["a/b/c"], ["a/c", "a/b/d/c"]),
        ("a\\*\\[b", ["a*[b"], ["axb"]),
        ("[!a]*[^b]", ["!xc", "aac"], ["b", "!xb"]),
        ("***/**/*a", ["b/a", "b/c/xa"], ["a", "b/c"]),
    ],
)
def test_dockerignore_says_what_stays(rules: str, left_out: list[str], sent: list[str]) -> None:
    ignore = Ignore.parse(rules)
    assert [path for path in (*left_out, *sent) if ignore.leaves_out(path)] == left_out


def test_a_pattern_that_is_none_is_named() -> None:
    with pytest.raises(ImageError, match=r"\.dockerignore.*\[z-a\]"):
        Ignore.parse("[z-a]")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a" * 1_001, "longer than 1000"),
        ("a\n" * 1_001, "more than 1000 patterns"),
        ("#" * 64_001, "longer than 64000"),
    ],
)
def test_patterns_are_bounded(text: str, why: str) -> None:
    with pytest.raises(ImageError, match=why):
        Ignore.parse(text)


@pytest.mark.parametrize("pattern", ["*a" * 400, "**/" + "**/a" * 200, "a*" * 400 + "b"])
def test_no_pattern_takes_more_than_linear_time(pattern: str) -> None:
    ignore = Ignore.parse(pattern + "/z")
    begun = time.process_time()
    assert not ignore.leaves_out("a" * 255 + "/" + "a/" * 1_000 + "y")
    assert time.process_time() - begun < 1.0


def packed(folder: Path) -> tuple[str, dict[str, tarfile.TarInfo]]:
    out = io.BytesIO()
    digest = context.pack(folder, "Dockerfile", "FROM x\n", out)
    assert context.pack(folder, "Dockerfile", "FROM x\n") == digest
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        return digest, {member.name: member for member in archive}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    (tmp_path / "b/run.sh").write_text("echo")
    (tmp_path / "b/run.sh").chmod(0o755)
    (tmp_path / "a.log").write_text("x")
    (tmp_path / "Dockerfile").write_text("FROM y\n")
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def test_a_context_is_its_paths_modes_and_contents(folder: Path) -> None:
    digest, members = packed(folder)
    assert sorted(members) == ["Dockerfile", "a.log", "b", "b/run.sh", "link"]
    assert members["b/run.sh"].mode == 0o755
    assert members["link"].issym() and members["link"].linkname == "/etc/passwd"
    assert {(m.mtime, m.uid, m.uname) for m in members.values()} == {(0, 0, "")}
    os.utime(folder / "a.log", (1, 1))
    assert packed(folder)[0] == digest
    (folder / "b/run.sh").chmod(0o644)
    assert packed(folder)[0] != digest


def test_what_is_ignored_is_in_no_digest(folder: Path) -> None:
    (folder / ".dockerignore").write_text("*.log\nDockerfile\n")
    digest, members = packed(folder)
    assert "a.log" not in members and "Dockerfile" in members
    (folder / "a.log").write_text("another")
    assert packed(folder)[0] == digest


def test_what_the_daemon_would_fetch_is_seen() -> None:
    text = 'FROM a\nADD x https://h/y /z/\nADD ["git@h:r.git", "/r"]\nCOPY https://no /x\nADD p q\n'
    assert bases.fetches(parse(text)) == ["https://h/y", "git@h:r.git"]
