"""Reading Dockerfiles: lines, flags, heredocs, stages, variables."""

from __future__ import annotations

import pytest
from trialog.sandbox.errors import ImageError
from trialog.sandbox.rootfs.dockerfile import Instruction, parse
from trialog.sandbox.rootfs.expansion import expand, pairs, words


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
