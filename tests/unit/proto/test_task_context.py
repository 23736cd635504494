"""What of a Dockerfile no build can do, named with its line before one begins."""

from __future__ import annotations

import dataclasses

import pytest
from support.task_folders import Changes, link, task
from trialog.proto.tasks.check import Settings, Verdict, check
from trialog.proto.tasks.context import faults
from trialog.proto.tasks.files import Entry

CONTEXT = {
    "a.csv": Entry("file"),
    "pages": Entry("dir"),
    "pages/x y": Entry("file"),
    "way": Entry("symlink", target="pages"),
}
PLAIN = {path: entry for path, entry in CONTEXT.items() if entry.kind != "symlink"}
RUN = Settings(images={"debian:bookworm-slim": "host"}, agent="oracle")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("FROM a\nRUNN x\n", ["line 2: RUNN is no instruction (did you mean RUN?)"]),
        ("\ufeff\n# c\nFROM a\n\n  zz x\n", ["line 5: ZZ is no instruction"]),
        ("FROM a\nRUN x \\\n # c\n\n  y\nCOPPY a b\n", ["line 6: COPPY is no"]),
        ("FROM a\nRUN <<EOF\nzz\n EOF\nEOF\nzz\n", ["line 6: ZZ is no instruction"]),
        ("FROM a\nRUN <<-'A' cat && <<B x\nzz\n\tA\nB\nzz\n", ["line 6: ZZ is no"]),
        ("FROM a\nRUN cat <<< word\nzz\n", ["line 3: ZZ is no instruction"]),
        ("FROM a\nRUN cat <<E-O.F\nzz\nE-O.F\n", []),
        ("# escape=`\nFROM a\nRUN x `\n zz\n", []),
        ("# syntax=docker/dockerfile:1\nFROM a\nZZ\n", ["line 3: ZZ is no instruction"]),
        ("# syntax=example.org/mine\nFROM a\nZZ\n", []),
        ("from a\nrun\tx\nHealthcheck NONE\nONBUILD RUN x\n", []),
        ("FROM a\nCOPY no.txt /\n", ["line 2: COPY of no.txt, which is not beside"]),
        ("FROM a\nADD --chown=1:1 a.csv b \\\n  c /\n", ["line 2: ADD of b,", "ADD of c,"]),
        ('FROM a\nCOPY ["pages/x y", "pages/z", "/"]\n', ["COPY of pages/z,"]),
        ("FROM a\nCOPY ./a.csv /a.csv pages/ . /x/\n", []),
        ("FROM a AS b\nFROM c\nCOPY --from=b --link /no /\n", []),
        ("FROM a\nCOPY $NAME ${X}/y 'q' ../up http://x.org/f <<EOF /\nzz\nEOF\n", []),
        ("FROM a\nCOPY way/anything /\n", []),
        ("FROM a\nCOPY a.csv/b /\n", ["COPY of a.csv/b,"]),
    ],
)
def test_faults_have_their_line(text: str, found: list[str]) -> None:
    said = faults(text, CONTEXT, wildcards=False)
    assert len(said) == len(found)
    assert all(part in one for part, one in zip(found, said, strict=True)), said


@pytest.mark.parametrize(
    ("pattern", "there"),
    [("*.csv", True), ("*.txt", False), ("p?ges/*", True), ("*/y", False), ("[ab].csv", True)],
)
def test_patterns_match_name_by_name(pattern: str, there: bool) -> None:
    text = f"FROM a\nCOPY {pattern} /\n"
    assert bool(faults(text, PLAIN, wildcards=True)) is not there
    assert faults(text, PLAIN, wildcards=False) == []
    assert faults(text, CONTEXT, wildcards=True) == [], "a link may lead to what is meant"


def verdict(changes: Changes, settings: Settings = RUN) -> Verdict:
    return check(task(changes), settings)


@pytest.mark.parametrize("provider", ["bubblewrap", "docker"])
def test_a_task_whose_image_no_build_can_make_is_refused(provider: str) -> None:
    settings = dataclasses.replace(RUN, provider=provider)
    start = "FROM debian:bookworm-slim\n"
    found = verdict({"environment/Dockerfile": f"{start}RUNN x\nCOPY x /x\n"}, settings)
    assert not found.runs
    assert found.reason == (
        "environment/Dockerfile: line 2: RUNN is no instruction (did you mean RUN?); "
        "environment/Dockerfile: line 3: COPY of x, which is not beside the Dockerfile"
    )
    files: Changes = {"environment/x": "1", "environment/y": link("x")}
    assert verdict({"environment/Dockerfile": f"{start}COPY x y /\n"} | dict(files)).runs


def test_the_image_of_the_tests_has_the_tests_beside_it() -> None:
    changes: Changes = {
        "task.toml": '[environment]\nnetwork_mode = "no-network"\n'
        '[verifier]\nenvironment_mode = "separate"\n',
        "tests/Dockerfile": "FROM debian:bookworm-slim\nCOPY test.sh /tests/\nCOPY no /\n",
    }
    assert verdict(changes).reason.startswith("tests/Dockerfile: line 3: COPY of no,")
    ready = 'docker_image = "debian:bookworm-slim"\n'
    ignored: Changes = {
        "task.toml": f'[environment]\nnetwork_mode = "no-network"\n{ready}',
        "environment/Dockerfile": "RUNN\n",
    }
    assert verdict(ignored).runs
