"""Which images a Dockerfile is built from."""

from __future__ import annotations

import pytest
from trialog.proto.tasks.dockerfile import UnknownImageError, bases, plain_name, unbuildable


@pytest.mark.parametrize(
    ("text", "images"),
    [
        ("FROM debian:bookworm-slim\n", ["debian:bookworm-slim"]),
        ("from ubuntu\nRUN echo FROM x\n", ["ubuntu"]),
        ("# FROM a\n\n   FROM   b   AS   base  \nFROM base\n", ["b"]),
        ("FROM --platform=linux/amd64 a AS one\nFROM b AS Two\nFROM two\n", ["a", "b"]),
        ("ARG V=3.12\nFROM python:${V}-slim\n", ["python:3.12-slim"]),
        ("ARG V\nFROM python:${V:-3.11}\n", ["python:3.11"]),
        ("ARG A=\"x\" B='y'\nFROM $A/$B\n", ["x/y"]),
        ("ARG V=1\nFROM a${V:+-slim}\n", ["a-slim"]),
        ("FROM scratch\nCOPY --from=busybox:1 /bin/sh /bin/sh\n", ["busybox:1"]),
        ("FROM a\nCOPY --from=0 /x /x\n", ["a"]),
        ("FROM a AS build\nFROM b\nCOPY --from=build --chown=1 /x /x\n", ["a", "b"]),
        ("FROM \\\n  a \\\n  AS b\n", ["a"]),
        ("# escape=`\nFROM `\n a\nRUN dir C:\\\nRUN x\n", ["a"]),
        ("FROM a\nRUN <<EOF\nFROM b\nEOF\nRUN <<-'X' cat\nFROM c\n\tX\nFROM d\n", ["a", "d"]),
        ("FROM a\nRUN x \\\n# FROM b\n && y\n", ["a"]),
        ("FROM a\nFROM a\n", ["a"]),
        ("FROM reg.example:5000/a/b@sha256:00\r\nRUN x\r\n", ["reg.example:5000/a/b@sha256:00"]),
    ],
)
def test_images_are_named_in_order(text: str, images: list[str]) -> None:
    assert bases(text) == images


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no FROM"),
        ("RUN x\n", "there is no FROM"),
        ("FROM\n", "names no image"),
        ("ARG BASE\nFROM $BASE\n", "without a default"),
        ("FROM ${BASE}\n", "without a default"),
    ],
)
def test_an_image_that_nobody_names_is_said(text: str, said: str) -> None:
    with pytest.raises(UnknownImageError, match=said):
        bases(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("FROM a AS b\nRUN --mount=type=cache,target=/x y\nCOPY --from=b /x /y\nADD f /f\n", []),
        ("FROM a\nRUN --mount=type=tmpfs,target=/t y\nCOPY --from=0 x y\nRUN tar x.tar\n", []),
        ("FROM a\nRUN --mount=target=/x y\n", ["RUN --mount=type=bind"]),
        ("FROM a\nRUN --mount=type=secret,id=k y\n", ["RUN --mount=type=secret"]),
        ("FROM a\nRUN --security=insecure y\n", ["RUN --security"]),
        ("FROM a\nCOPY --from=busybox /bin/sh /sh\n", ["COPY --from=busybox"]),
        ("FROM a\nADD https://x.org/f /f\n", ["ADD of an address"]),
        ('FROM a\nADD ["git@github.com:a/b.git", "/f"]\n', ["ADD of an address"]),
        ("FROM a\nADD data.tar.gz /data/\n", ["ADD of an archive"]),
        ("FROM a\nCOPY data.tar.gz /data.tar.gz\nADD x /data.tar\n", []),
    ],
)
def test_what_only_a_daemon_builds_is_named(text: str, found: list[str]) -> None:
    assert unbuildable(text) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("debian", "debian:latest"),
        ("docker.io/library/debian:12", "debian:12"),
        ("library/debian", "debian"),
        ("reg:5000/a", "reg:5000/a:latest"),
    ],
)
def test_spellings_of_one_image(one: str, other: str) -> None:
    assert plain_name(one) == plain_name(other)


def test_other_images_are_others() -> None:
    names = ["debian:12", "debian:11", "a/debian:12", "debian@sha256:00", "reg:5000/debian:12"]
    assert len({plain_name(name) for name in names}) == len(names)
