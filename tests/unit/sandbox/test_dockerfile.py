"""Reading Dockerfiles: lines, flags, heredocs, stages, variables."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from trialog.sandbox.errors import ImageError
from trialog.sandbox.images import Image, Recipe
from trialog.sandbox.rootfs import recipe
from trialog.sandbox.rootfs.copying import expanded_text
from trialog.sandbox.rootfs.dockerfile import Instruction, parse
from trialog.sandbox.rootfs.expansion import expand, pairs, words
from trialog.sandbox.rootfs.runner import Builder
from trialog.sandbox.rootfs.store import Stored


def only(text: str) -> Instruction:
    (instruction,) = parse(f"FROM x\n{text}").stages[0].instructions
    return instruction


def test_lines_are_joined_and_counted() -> None:
    file = parse(
        "\ufeff# escape=\\\n\nFROM x\n\nRUN a && \\\n  # comment\n\n  b \\  \n  c\nRUN d\n"
    )
    first, second = file.stages[0].instructions
    assert (first.line, first.text.split()) == (5, ["a", "&&", "b", "c"])
    assert (second.line, second.text) == (10, "d")


def test_another_escape_character() -> None:
    file = parse("# syntax=x\n# escape=`\nFROM x\nRUN a `\n b\\\nRUN c\n")
    assert [each.text.split() for each in file.stages[0].instructions] == [["a", "b\\"], ["c"]]
    assert file.escape == "`"
    assert parse("FROM x\n# escape=`\nRUN a \\\n b\n").escape == "\\"  # too late to count


def test_stages_and_global_arguments() -> None:
    file = parse("ARG V=1\nFROM --platform=linux/amd64 a:$V AS Build\nRUN x\nFROM build\nRUN y\n")
    assert [each.text for each in file.arguments] == ["V=1"]
    assert [(stage.base, stage.alias) for stage in file.stages] == [
        ("a:$V", "build"),
        ("build", ""),
    ]
    assert [stage.instructions[0].text for stage in file.stages] == ["x", "y"]


def test_flags_stand_before_the_words() -> None:
    copy = only("COPY --chown=a:b --from=x --link src --not-a-flag /dst")
    assert copy.flags == (("chown", "a:b"), ("from", "x"), ("link", ""))
    assert copy.text == "src --not-a-flag /dst"
    assert only("RUN\t--mount=type=cache,target=/c\tmake").text == "make"


def test_the_exec_form() -> None:
    assert only('RUN ["a", "b c"]').words() == ["a", "b c"]
    assert only("RUN [ -e x ]").words() is None
    assert only("RUN ['a']").words() is None
    assert only("RUN [1]").words() is None


def test_heredocs() -> None:
    run = only("RUN cat <<A <<-'B' > x\nin a\nA\n\tin $b\n\tB\n")
    assert [(h.name, h.text, h.literal) for h in run.heredocs] == [
        ("A", "in a\n", False),
        ("B", "in $b\n", True),
    ]
    assert only("RUN cat <<<word").heredocs == ()
    assert only("ENV A=<<B").heredocs == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("FROM", "line 1: FROM says nothing"),
        ("FROM a b c d", "line 1: FROM takes"),
        ("FROM x\nRUN <<A\nx", "<<A has no end"),
        ("FROM x\nrun\n", "line 2: RUN says nothing"),
        ("ENV a=b\nFROM x", "line 1: ENV stands before"),
        ("# escape=x\nFROM x", "escape=x"),
        ("FROM x\n" + "RUN a\n" * 20_000, "more than 20000 lines"),
    ],
)
def test_what_is_no_dockerfile_is_said(text: str, why: str) -> None:
    with pytest.raises(ImageError, match=why):
        parse(text)


VARIABLES = {"A": "one", "EMPTY": "", "DEEP": "$A"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$A-${A}", "one-one"),
        ("${NONE}", ""),
        ("${NONE:-x}${EMPTY:-y}${EMPTY-z}", "xy"),
        ("${A:+x}${EMPTY:+y}${EMPTY+z}${NONE+w}", "xz"),
        ("${NONE:-${A}}", "one"),
        ("'$A' \"$A\"", "$A one"),
        (r"\$A \\ \a", r"$A \ a"),
        (r'"\$A \n"', r"$A \n"),
        ("$DEEP", "$A"),
        ("100$ $", "100$ $"),
    ],
)
def test_variables(text: str, expected: str) -> None:
    assert expand(text, VARIABLES) == expected


@pytest.mark.parametrize("text", ["${A", "${A?x}", "${}", "${A:=x}", "${1}"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ImageError):
        expand(text, VARIABLES)


def test_words_keep_their_quotes() -> None:
    assert words("a 'b c' \"d e\" f\\ g  h") == ["a", "'b c'", '"d e"', "f\\ g", "h"]


def test_pairs() -> None:
    assert pairs('A=1 B="two words" C=x\\ y') == [("A", "1"), ("B", '"two words"'), ("C", "x\\ y")]
    assert pairs("NAME the whole rest") == [("NAME", "the whole rest")]
    with pytest.raises(ImageError):
        pairs("A=1 B")


def doubled(times: int, name: str) -> str:
    """Each line says the one before it twice."""
    said = "".join(f"{name} V{n + 1}=$V{n}$V{n}\n" for n in range(times))
    return f"{name} V0=x\n{said}"


class Bench:
    """A sandbox in which nothing is run: ENV and ARG need none."""

    guest: Any = None

    async def ask(self, request: bytes) -> bytes:
        raise AssertionError("nothing is asked")

    async def finish(self, image: Image) -> Stored:
        return Stored(image, ())

    async def discard(self) -> None:
        pass


async def built(folder: Path, text: str) -> Image:
    (folder / "Dockerfile").write_text(text)
    planned = recipe.plan(Recipe(folder))

    async def begun(_: object) -> Stored:
        return Stored(Image("base"), ())

    async def bench(_: Stored) -> Bench:
        return Bench()

    return (await Builder(planned, bench).build(begun)).image


async def test_variables_that_grow_are_refused_with_their_line(tmp_path: Path) -> None:
    for name in ("ENV", "ARG"):
        with pytest.raises(ImageError, match=rf"line 18: {name} V16=.*longer than 64000"):
            await built(tmp_path, "FROM scratch\n" + doubled(40, name))
    with pytest.raises(ImageError, match="line 17: a value is longer than 64000"):
        await built(tmp_path, doubled(40, "ARG") + "FROM scratch\n")
    image = await built(tmp_path, "FROM scratch\n" + doubled(15, "ENV"))
    assert len(image.env["V15"]) == 1 << 15


async def test_an_environment_is_bounded_as_a_whole(tmp_path: Path) -> None:
    large = "".join(f"ENV L{n}=$V15\n" for n in range(9))
    with pytest.raises(ImageError, match=r"line 23: ENV L5=.*256000 characters together"):
        await built(tmp_path, "FROM scratch\n" + doubled(15, "ENV") + large)
    many = "".join(f"ENV L{n}=1\n" for n in range(1_001))
    with pytest.raises(ImageError, match=r"line 1002: .*more than 1000 variables"):
        await built(tmp_path, "FROM scratch\n" + many)


async def test_work_on_variables_is_bounded_as_a_whole(tmp_path: Path) -> None:
    again = "ENV L=$V15\n" * 1_100
    with pytest.raises(ImageError, match=r"L=.*characters in all"):
        await built(tmp_path, "FROM scratch\n" + doubled(15, "ENV") + again)


def test_variables_are_nested_to_a_depth() -> None:
    def nested(depth: int) -> str:
        return "${NONE:-" * depth + "x" + "}" * depth

    assert expand(nested(16), {}) == "x"
    for depth in (17, 5_000):
        with pytest.raises(ImageError, match="nested more than 16"):
            expand(nested(depth), {})


def test_a_file_is_bounded() -> None:
    with pytest.raises(ImageError, match="longer than 1000000"):
        parse("FROM a\nRUN " + "x" * 1_000_000)


def test_long_lines_are_read_in_linear_time() -> None:
    begun = time.process_time()
    assert len(words("x" * 900_000)) == 1
    (stage,) = parse("FROM a\nRUN " + "--a " * 200_000 + "true").stages
    assert len(stage.instructions[0].flags) == 200_000
    with pytest.raises(ImageError, match="not closed"):
        expanded_text("${" * 400_000, str)
    assert time.process_time() - begun < 5.0


def test_variables_of_a_heredoc() -> None:
    text = "a='$A' \\$A ${A}\n${NONE:-${A}} \"$\"\n"
    found = expanded_text(text, lambda word: expand(word, VARIABLES))
    assert found == "a='one' $A one\none \"$\"\n"
